# program(int8(-3), uint8(200), 40000), program(int8(100), uint8(7), 2)
def program(a, b, c):
    v0 = a
    v1 = 0
    v2 = 1
    for i in range(c % 5):
        if v0 > i:
            v0 = b
        else:
            v1 = i + c
        if b > 100:
            v2 = sk.int16(300)
            continue
        v2 = v1
    x = v2 if v1 > 5 else a
    y = b and v2
    w = sk.float16(0.5)
    if c > 5:
        w = 4097.25 + sk.float32(a)
    return (v0, v1, v2, x, y, w)
