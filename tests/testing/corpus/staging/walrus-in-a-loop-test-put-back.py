# program(int64(-2), int64(6), int64(-2))
def program(a, b, c):
    v0, v1, v2, v3 = (a, 0, c, 1)
    while 0 < v0 and (v2 := 1):
        for i7, item in {0: 0, 1: 0}.items():
            v2 = v2 + 0
            v1, (v2, v3) = (c, (v1, 0))
    return (0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0)
