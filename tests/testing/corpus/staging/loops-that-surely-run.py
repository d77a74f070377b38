# program(3, uint8(4)), program(0, uint8(9))
def program(a, b):
    i = 0
    while True:
        i += 1
        z = i + b
        if i > a:
            break
    for j in range(2):
        y = z * 2 + j
    return (z, y, j)
