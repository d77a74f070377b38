# program(int64(1), int64(1), int64(9))
class Box:
    def __init__(self, x, y):
        self.x = x
        self.y = y

def program(a, b, c):
    v0, v1, v2, v3 = (1, 0, 0, 0)
    xs = [0, 0, 0]
    box = Box(c, 4)
    d = {'k': a}
    grid = [[1, b], Box(2, c)]
    for i2 in range(3, -2, -2):
        if v3 <= i2:
            return (v2, v1, v3, v0, xs[0], xs[1], xs[2], box.x, box.y, d['k'], grid[0][1], grid[1].y)
        v3, *rest = [v0, a, 4]
        if box.y >= v3:
            v0 |= -box.x
            v1 = (v3 << (v0 & 3)) % 1009
        else:
            xs[0], xs[2] = (xs[2], xs[0])
            xs[0] = (v2 := (i2 + 8))
            v0, *rest = [v1, v2, 3]
            v1 = rest[1] + rest[0]
    return (v0, v1, v2, v3, xs[0], xs[1], xs[2], box.x, box.y, d['k'], grid[0][1], grid[1].y)
