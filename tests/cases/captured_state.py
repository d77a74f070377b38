"""Small programs that read something outside a kernel, and a statement that changes what was read.

Each is (setup, the expression that the kernel reads, the change).
"""

from __future__ import annotations

SUBCLASS = """
class Own({base}):
    pass
V = Own({made})
V.order = 2
"""

STATE = {  # R1: state on objects whose class derives from a container
    f"an attribute of a {base.rsplit('.')[-1]}": (SUBCLASS.format(base=base, made=made), read, "V.order = 3")
    for base, made, read in [
        ("tuple", "(8, 8)", "V.order + V[0]"),
        ("list", "[8, 8]", "V.order + V[0]"),
        ("dict", "{8: 8}", "V.order + V[8]"),
        ("set", "{8}", "V.order + len(V)"),
        ("collections.Counter", "'aab'", "V.order + V['a']"),
        ("collections.deque", "[8]", "V.order + V[0]"),
        ("int", "8", "V.order + V"),
        ("collections.namedtuple('Base', 'x')", "8", "V.order + V.x"),
    ]
} | {
    "a new tuple of that class": (
        "class Own(tuple): pass\ndef made(order):\n    made = Own((8, 8)); made.order = order; return made\nV = made(2)",
        "V.order",
        "V = made(3)",
    ),
    "one in a dataclass": (
        "class Own(tuple): pass\n@dataclasses.dataclass(frozen=True)\nclass Config:\n    layout: object\n"
        "V = Config(Own((8,)))\nV.layout.order = 2",
        "V.layout.order",
        "V.layout.order = 3",
    ),
    "a class's name": ("class C: pass", "len(C.__name__)", "C.__name__ = 'Longer'"),
    "a class's annotations": ("class C:\n    x: 1", "C.__annotations__['x']", "C.__annotations__['x'] = 5"),
    "a function's annotations": ("def f(x: 1): pass", "f.__annotations__['x']", "f.__annotations__['x'] = 5"),
    "a module's annotations": (
        "import types\nm = types.ModuleType('m')\nm.C = type('C', (), {'__annotations__': {'x': 1}})",
        "m.C.__annotations__['x']",
        "m.C.__annotations__['x'] = 5",
    ),
    "a function's attribute": ("def f(): pass\nf.x = 1", "f.x", "f.x = 2"),
}

LOST = {  # R3: what a key by fields, or by items alone, loses
    "state that is no field": (
        "@dataclasses.dataclass(frozen=True)\nclass C:\n    x: int\n    y: dataclasses.InitVar[int] = 0\n"
        "    def __post_init__(self, y): object.__setattr__(self, 'hidden', y)\nV = C(1, 2)",
        "V.hidden + V.x",
        "V = C(1, 3)",
    ),
    "a matrix that is an array": (
        "import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    V = np.matrix([[1, 2]])",
        "int(hasattr(V, 'A1'))",
        "V = np.array([[1, 2]])",
    ),
    "an array of a class of its own": (
        "class Own(np.ndarray):\n    size_of = 5\nV = np.arange(6).view(Own)", "int(hasattr(V, 'size_of'))", "V = np.arange(6)"
    ),
    "a memoryview's format": ("V = memoryview(b'abcd')", "len(V.format) + V[0]", "V = memoryview(b'abcd').cast('h')"),
    "a deque's bound": (
        "V = collections.deque([1], 3)", "V.maxlen", "V = collections.deque([1], 5)"
    ),
    "an array's shape": ("V = np.arange(6)", "V.shape[0]", "V.resize((2, 3), refcheck=False)"),
    "an array's contents": ("V = np.arange(6)", "int(V[2])", "V[2] = 9"),
    "an array behind a view": ("A = np.arange(6)\nV = A[::2]", "int(V[1])", "A[2] = 9"),
    "an array of objects": ("V = np.array([1, 'x'], object)", "V[0]", "V[0] = 5"),
    "a dict's order": ("V = {'a': 1, 'b': 2}", "list(V.values())[0]", "V['a'] = V.pop('a')"),
    "an ordered dict's order": ("V = collections.OrderedDict(a=1, b=2)", "list(V.values())[0]", "V.move_to_end('a')"),
    "the sign of a zero": ("import math\nV = 0.0", "int(math.copysign(1, V))", "V = -0.0"),
}  # fmt: skip

ITEMS = "\ndef items(n):\n    for i in range(n): yield "
GENERATORS = {
    "plain": f"{ITEMS}i * STEP",
    "from another": "def inner(n):\n    for i in range(n): yield i * STEP\ndef items(n): yield from inner(n)",
    "by a helper": f"def scaled(i): return i * STEP{ITEMS}scaled(i)",
    "of a method": "class C:\n    def items(self, n):\n        for i in range(n): yield i * STEP\nitems = C().items",
    "in a closure": "def make():\n    def items(n):\n        for i in range(n): yield i * STEP\n    return items\nitems = make()",
    "by a nested function": "def items(n):\n    def at(i): return i * STEP\n    for i in range(n): yield at(i)",
    "by a list": f"TABLE = [1]{ITEMS}i * TABLE[0] * STEP",
    "by an object": f"class C: pass\nc = C(); c.step = 1{ITEMS}i * c.step * STEP",
    "by a lambda": f"at = lambda i: i * STEP{ITEMS}at(i)",
    "by a partial": f"def at(k, i): return i * k * STEP\nf = functools.partial(at, 1){ITEMS}f(i)",
    "by a class": f"class C:\n    def __init__(self, i): self.i = i * STEP{ITEMS}C(i).i",
    "by a module": f"import types\nm = types.ModuleType('m'); m.f = lambda i: i * STEP{ITEMS}m.f(i)",
}

KEY = "SIGN = 1\ndef key(x): return SIGN * x\n"
STEP_2 = "STEP = 2\nclass C:\n    def "
RUN = {  # R4: what CPython runs while specialising
    **{
        f"a generator function {kind}": (f"STEP = 2\n{text}", "sum(items(4))", "STEP = 5")
        for kind, text in GENERATORS.items()
    },
    "a generator function's default": (
        "def items(n, step=2):\n    for i in range(n): yield i * step",
        "sum(items(4))",
        "items.__defaults__ = (5,)",
    ),
    "a sort key": (KEY, "sorted([3, 1, 2], key=key)[0]", "SIGN = -1"),
    "a list's sort key": (
        f"{KEY}def first():\n    xs = [3, 1, 2]\n    xs.sort(key=key)\n    return xs[0]",
        "first()",
        "SIGN = -1",
    ),
    "np.vectorize": (
        "STEP = 2\ndef f(x): return x * STEP\nV = np.vectorize(f)",
        "int(V(np.arange(4))[3])",
        "STEP = 5",
    ),
    "__index__": (f"{STEP_2}__index__(self): return STEP\nV = C()\nXS = (1, 2, 3, 4, 5, 6)", "XS[V]", "STEP = 5"),
    "__getitem__ for iteration": (
        f"{STEP_2}__getitem__(self, i):\n        if i > 3: raise IndexError\n        return i * STEP\nV = C()",
        "sum(list(V))",
        "STEP = 5",
    ),
    "__str__": (f"{STEP_2}__str__(self): return 'x' * STEP\nV = C()", "len(str(V))", "STEP = 5"),
    "__format__": (f"{STEP_2}__format__(self, _): return 'x' * STEP\nV = C()", "len(f'{V}')", "STEP = 5"),
    "__lt__": (
        "SIGN = 1\nclass C:\n    def __init__(self, v): self.v = v\n"
        "    def __lt__(self, other): return SIGN * self.v < SIGN * other.v\nXS = [C(3), C(1)]",
        "min(XS).v",
        "SIGN = -1",
    ),
    "__eq__ by in": (
        f"{STEP_2}__eq__(self, other): return other == STEP\n    __hash__ = None\nXS = (C(),)",
        "int(2 in XS)",
        "STEP = 5",
    ),
    "__eq__ of a key": (
        f"{STEP_2}__eq__(self, other): return STEP == 2\n    def __hash__(self): return 1\nD = {{C(): 1}}",
        "int(C() in D)",
        "STEP = 5",
    ),
    "a metaclass's __call__": (
        "STEP = 2\nclass Meta(type):\n    def __call__(cls): made = super().__call__(); made.x = STEP; return made\n"
        "class C(metaclass=Meta): pass",
        "C().x",
        "STEP = 5",
    ),
    "a metaclass's __call__ before an __init__": (
        "STEP = 2\nclass Meta(type):\n    def __call__(cls, v): made = super().__call__(v); made.x *= STEP; return made\n"
        "class C(metaclass=Meta):\n    def __init__(self, v): self.x = v",
        "C(3).x",
        "STEP = 5",
    ),
    "a metaclass's __call__ that is replaced": (
        "class Meta(type):\n    def __call__(cls, v): return super().__call__(2 * v)\n"
        "class C(metaclass=Meta):\n    def __init__(self, v): self.x = v",
        "C(3).x",
        "Meta.__call__ = lambda cls, v: type.__call__(cls, 5 * v)",
    ),
    "code put into a function": ("def f(): return 2\ndef g(): return 5", "f()", "f.__code__ = g.__code__"),
    "a method that a class comes to have": (
        "class C:\n    pass\nV = C()",
        "int(len(str(V)) > 3)",
        "C.__str__ = lambda self: 'x'",
    ),
    "an inherited method that is hidden": (
        "class B:\n    def __index__(self): return 2\nclass C(B): pass\nV = C()\nXS = (1, 2, 3, 4, 5, 6)",
        "XS[V]",
        "C.__index__ = lambda self: 5",
    ),
}

CLASS = "class C:\n    x = 1\n    def f(self): return 2\nclass D:\n    x = 3\n    def f(self): return 4\n"
ROWS = {  # each kind of place that can be read
    "a default": ("def f(a=1): return a", "f()", "f.__defaults__ = (5,)"),
    "a keyword default": ("def f(*, a=1): return a", "f()", "f.__kwdefaults__['a'] = 5"),
    "keyword defaults": ("def f(*, a=1): return a", "f()", "f.__kwdefaults__ = {'a': 5}"),
    "a list in a default": ("def f(a=[1]): return a[0]", "f()", "f.__defaults__[0][0] = 5"),
    "the class of an object whose attribute is read": (f"{CLASS}V = C()", "V.x", "V.__class__ = D"),
    "the class of an object whose method is called": (f"{CLASS}V = C()", "V.f()", "V.__class__ = D"),
    "the class of an object that is asked for": (f"{CLASS}V = C()", "int(isinstance(V, C))", "V.__class__ = D"),
    "an attribute that hides its class's": (f"{CLASS}V = C()", "V.x", "V.x = 5"),
    "a method that hides its class's": (f"{CLASS}V = C()", "V.f()", "V.f = lambda: 5"),
    "a property that hides an attribute": (f"{CLASS}V = C(); V.y = 1", "V.y", "C.y = property(lambda self: 5)"),
    "another dict of attributes": (f"{CLASS}V = C(); V.y = 1", "V.y", "V.__dict__ = {'y': 5}"),
    "a slot": ("class C:\n    __slots__ = ('y',)\nV = C(); V.y = 1", "V.y", "V.y = 5"),
    "a dataclass's field": ("@dataclasses.dataclass\nclass C:\n    y: int = 1\nV = C()", "V.y", "V.y = 5"),
    "a list in a dataclass": ("@dataclasses.dataclass\nclass C:\n    y: object\nV = C([1])", "V.y[0]", "V.y[0] = 5"),
    "a base's attribute": ("class B: x = 1\nclass C(B): pass", "C.x", "B.x = 5"),
    "an attribute before a base's": ("class B: x = 1\nclass C(B): pass", "C.x", "C.x = 5"),
    "whether there is an attribute": (f"{CLASS}V = C()", "int(hasattr(V, 'z'))", "V.z = 1"),
    "an attribute with a default": (f"{CLASS}V = C()", "getattr(V, 'z', 1)", "V.z = 5"),
    "a list's length": ("V = [1]", "len(V)", "V.append(2)"),
    "a list in a tuple": ("V = ([1],)", "V[0][0]", "V[0][0] = 5"),
    "a list in a dict in a list": ("V = [{'a': [1]}]", "V[0]['a'][0]", "V[0]['a'][0] = 5"),
    "a set": ("V = {1}", "len(V)", "V.add(2)"),
    "a deque": ("V = collections.deque([1])", "V[0]", "V[0] = 5"),
    "a default factory": (
        "V = collections.defaultdict(lambda: 1)",
        "V.default_factory()",
        "V.default_factory = lambda: 5",
    ),
    "a view of a dict": ("D = {'a': 1}\nV = D.values()", "list(V)[0]", "D['a'] = 5"),
    "a proxy of a dict": ("import types\nD = {'a': 1}\nV = types.MappingProxyType(D)", "V['a']", "D['a'] = 5"),
    "a bytearray": ("V = bytearray(b'ab')", "V[0]", "V[0] = 5"),
    "a partial's keywords": ("def f(a): return a\nV = functools.partial(f, a=1)", "V()", "V.keywords['a'] = 5"),
    "an attribute of a module": ("import types\nm = types.ModuleType('m'); m.x = 1", "m.x", "m.x = 5"),
    "a builtin that is hidden": ("", "max(1, 2)", "max = lambda *_: 5"),
    "an object's state": (
        "import operator\nclass C: pass\nV = C(); V.a = [1]",
        "operator.attrgetter('a')(V)[0]",
        "V.a[0] = 5",
    ),
}

LATER = {  # what a class, or an object, comes to say only later, and what it says no more (twins of R3 and R4)
    **{
        f"`{name}` beside what answered before": (
            f"class Base:\n    {before}\nclass C(Base): pass\nV = C()\nclass D(C): pass\nW = D()\ndef later(*a): {body}",
            read,
            f"D.{name} = C.{name} = later",
        )
        for name, before, read, body in [
            ("__bool__", "def __len__(self): return 3", "1 if V else 2", "return False"),
            ("__len__", "pass", "1 if V else 2", "return 0"),
            ("__iter__", "def __getitem__(self, i): return (1, 2)[i]", "[x for x in V][0]", "return iter([5])"),
            ("__contains__", "def __iter__(self): return iter((1, 2))", "1 if 2 in V else 4", "return False"),
            ("__add__", "def __add__(self, other): return 1", "V + W", "return 9"),
            ("__iadd__", "def __add__(self, other): return 1", "added(V)", "return 9"),
            ("__eq__", "pass", "1 if V == W else 2", "return True"),
            ("__int__", "def __index__(self): return 4", "int(V)", "return 5"),
            ("__float__", "def __index__(self): return 4", "float(V)", "return 5.0"),
            ("__neg__", "def __neg__(self): return 4", "-V", "return 5"),
            ("x", "def __getattr__(self, name): return 4", "0 if V.x == 4 else 1", "pass"),
            ("__getitem__", "def __getitem__(self, i): return 4", "V[0]", "return 5"),
        ]
    },
    "`__radd__` of a class that derives from the other's": (
        "class C:\n    def __add__(self, other): return 1\nclass D(C): pass\nV = C()\nW = D()\ndef later(*a): return 9",
        "V + W",
        "D.__radd__ = later",
    ),
    "a base's method, seen by `super()`": (
        "class A:\n    def f(self): return 1\nclass B(A):\n    def f(self): return super().f() * 10\nV = B()",
        "V.f()",
        "A.f = lambda self: 2",
    ),
    "a class put between, seen by `super()`": (
        "class A:\n    def f(self): return 1\nclass C(A):\n    def f(self): return 3\n"
        "class B(A):\n    def f(self): return super().f() * 10\nV = B()",
        "V.f()",
        "B.__bases__ = (C,)",
    ),
    "an item of a class's own behind a list's": ("class C(list): pass\nV = C([1])", "V[0]", "C.__getitem__ = lambda s, i: 5"),
    "what an object holds before its class computes it": (
        "class D:\n    def __get__(self, obj, cls=None): return 4\nclass C: x = D()\nV = C()",
        "V.x",
        "V.__dict__['x'] = 5",
    ),
    "what an object no longer holds": (
        "class D:\n    def __get__(self, obj, cls=None): return 4\nclass C: x = D()\nV = C()\nV.__dict__['x'] = 5",
        "V.x",
        "del V.__dict__['x']",
    ),
    "a descriptor that now comes before what an object holds": (
        "class D:\n    def __get__(self, obj, cls=None): return 4\nclass C: x = D()\nV = C()\nV.__dict__['x'] = 5",
        "V.x",
        "D.__set__ = lambda self, obj, value: None",
    ),
    "an attribute before `__getattr__`": (
        "class C:\n    def __getattr__(self, name): return 4\nV = C()", "V.x", "V.x = 5"
    ),
    "a `cached_property` that was computed": (
        "class C:\n    @functools.cached_property\n    def x(self): return 4\nV = C()",
        "V.x",
        "V.__dict__['x'] = 5",
    ),
    "how an object is made": (
        "class C:\n    x = 1",
        "C().x",
        "def later(self): self.x = 4\nC.__init__ = later",
    ),
    "what an object is made of": (
        "class C:\n    x = 1\nclass D:\n    x = 2",
        "C().x",
        "C.__new__ = lambda cls: D()",
    ),
    "what is done when an object is made": (
        "@dataclasses.dataclass\nclass C:\n    x: int = 1\n    def __post_init__(self): pass",
        "C().x",
        "def later(self): self.x = 4\nC.__post_init__ = later",
    ),
    "how a metaclass makes objects": (
        "class M(type): pass\nclass C(metaclass=M):\n    x = 1\nclass D:\n    x = 2",
        "C().x",
        "def later(cls): return D()\nM.__call__ = later",
    ),
}  # fmt: skip

ALL = {**STATE, **LOST, **RUN, **ROWS, **LATER}

HEAD = """
import collections, dataclasses, functools
import numpy as np
import stagekit as sk

def added(value):
    value += 1
    return value

"""
KERNEL = """
def read(): return {read}

@sk.jit
def kernel(out: sk.Tensor((None,), sk.float64)):
    out[0] = {read}
"""
"""What is behind a setup: in Python, and in a kernel."""
