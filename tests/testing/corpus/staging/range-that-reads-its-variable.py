# program(-1, 8, 0)
def program(a, b, c):
    box = Box(0, 1)
    for i2 in range(1):
        for eachi3 in box:
            for i2 in range(1, i2, -1):
                box.swap()
    return (0, 0, 0, 0, 0, 1, 0, 0, box.y, 0, 1, 0)
