# program(3, int8(4)), program(6, int8(2))
def program(a, b):
    if a > b:
        zs = [a, b, 1]
    else:
        zs = [b, 0, 2]
    zs[1] = 7
    zs[0] += 1
    return (zs[0], zs[1], zs[2])
