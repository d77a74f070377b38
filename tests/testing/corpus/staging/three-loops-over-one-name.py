# program(int64(3), int64(2), int64(5))
def program(a, b, c):
    v0 = 0
    for i in range(2):
        for i in range(b):
            for i in range(a % 4):
                v0 += c
    return (v0, a)
