# program(9, uint16(22), int16(7), int32([-4, 3, 5]), uint8([[1, 0, 4], [8, 7, 2]])) as cccrt, rrrrr, rcrtr
def program(a, b, c, s, m):
    v0 = a
    v1 = 3
    xs = [len(s[v1:]), len(s[-2:v1]), len(m[:, b:])]
    part = m[-1:, ::-1]
    for i in range(len(part[0])):
        xs[0] = xs[0] + part[0, i] * 2
    part[0, 0] = 9
    return (v0, xs[0], xs[1], xs[2], m[1, 2], len(m[1, c:2]), len(s[xs[1]:-5:-1]))
