"""A C source that makes a module of tvm-ffi of an exported library, for `tvm_ffi.load_module`.

    int __tvm_ffi_scale(void *, const sk_any *args, int32_t count, sk_any *result)     0, or -1 after an error was left there

One function for each kernel, for the targets that it has: the arrays' device chooses. It checks the types of arguments, which C
does not know, calls the library, and puts its status into words. It needs no header of tvm-ffi: what it uses of that interface
has been the same since version 0.1.8.

Source: apache-tvm-ffi, `tvm/ffi/c_api.h` (TVMFFISafeCallType, TVMFFIAny, TVMFFIShapeCell), `extra/c_env_api.h`; DLPack's header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stagekit.exporting.c_source import function_name
from stagekit.exporting.entries import CParameter, ExportedKernel, form_of
from stagekit.exporting.runtime_source import filled
from stagekit.signature import ArraySpec, ScalarSpec

_RUNTIME = """\
/* Functions of tvm-ffi for the library @name@. Generated: changes are lost when it is exported again. */
#define _POSIX_C_SOURCE 200809L
#include "@name@.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* What tvm-ffi and DLPack lay down. An object begins with a head of 24 bytes; what is in it follows. */
typedef struct sk_any {
    int32_t kind;
    uint32_t padding;
    union { int64_t integer; double real; const char *object; } value;
} sk_any;
typedef struct sk_tensor {
    char *data;
    int32_t device, ordinal, rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
} sk_tensor;
typedef struct sk_shape { const int64_t *sizes; size_t rank; } sk_shape;
enum { SK_INTEGER = 1, SK_BOOL = 2, SK_REAL = 3, SK_TENSOR = 7, SK_SHAPE = 69, SK_OBJECT = 70, SK_HEAD = 24 };
enum { SK_CPU = 1, SK_CUDA = 2, SK_CUDA_HOST = 3, SK_CUDA_MANAGED = 13 };
extern void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text);
extern void *TVMFFIEnvGetStream(int32_t device, int32_t ordinal);

/* A parameter. form: 'a' an array, 'i' an integer from low to high, 'f' a float, 'h' one of `bits` bits, 's' a size of
   one to three axes. what: its type, for errors. rank: -1 for any. Of 'h' code has the digits of the fraction, low the
   exponent of the least normal number, and high the bits of what is larger than all numbers. */
typedef struct sk_parameter {
    const char *name, *what;
    char form;
    uint8_t code, bits;
    int rank;
    int64_t low;
    uint64_t high;
} sk_parameter;
typedef union sk_value { @name@_array array; int64_t integer; double real; @name@_size size; } sk_value;
typedef struct sk_place { int32_t device, ordinal; void *before; int is_pushed; } sk_place;

static int sk_fail(const char *kind, const char *function, const sk_parameter *p, const char *text, const char *more) {
    char all[512];
    if (p == NULL) snprintf(all, sizeof all, "%s: %s%s", function, text, more);
    else snprintf(all, sizeof all, "%s: `%s` %s%s", function, p->name, text, more);
    TVMFFIErrorSetRaisedFromCStr(kind, all);
    return -1;
}

static int sk_take_array(const char *function, const sk_parameter *p, const sk_any *given, sk_value *to, sk_place *place) {
    const sk_tensor *t = (const sk_tensor *)(given->value.object + (given->kind == SK_OBJECT ? SK_HEAD : 0));
    if ((given->kind != SK_TENSOR && given->kind != SK_OBJECT) || t == NULL || t->code != p->code || t->bits != p->bits ||
        t->lanes != 1 || (p->rank >= 0 && t->rank != p->rank))
        return sk_fail("TypeError", function, p, "is to be ", p->what);
    int32_t device = t->device == SK_CUDA_HOST ? SK_CPU : t->device == SK_CUDA_MANAGED ? SK_CUDA : t->device;
    int32_t ordinal = device == SK_CPU ? 0 : t->ordinal;
    if (place->device == 0) *place = (sk_place){device, ordinal, NULL, 0};
    if (place->device != device || place->ordinal != ordinal)
        return sk_fail("ValueError", function, p, "is on another device than the arrays before it", "");
    to->array = (@name@_array){t->data == NULL ? NULL : t->data + t->offset, t->shape, t->strides};
    return 0;
}

static int sk_take_size(const char *function, const sk_parameter *p, const sk_any *given, sk_value *to) {
    const sk_shape *shape = (const sk_shape *)(given->value.object + SK_HEAD);
    const int64_t *sizes = given->kind == SK_INTEGER ? &given->value.integer : given->kind == SK_SHAPE ? shape->sizes : NULL;
    size_t rank = given->kind == SK_SHAPE ? shape->rank : 1;
    uint32_t axes[3] = {1, 1, 1};
    if ((sizes == NULL && rank > 0) || rank > 3) return sk_fail("TypeError", function, p, "is to be ", p->what);
    for (size_t axis = 0; axis < rank; axis++) {
        if (sizes[axis] < 0 || sizes[axis] > UINT32_MAX) return sk_fail("ValueError", function, p, "is beyond the limits", "");
        axes[axis] = (uint32_t)sizes[axis];
    }
    to->size = (@name@_size){axes[0], axes[1], axes[2]};
    return 0;
}

/* Return the bits of the nearest small float. */
static int64_t sk_small(const sk_parameter *p, double number) {
    int exponent = (int)p->low;
    uint64_t bits = isnan(number) ? p->high | 1u << (p->code - 1) : p->high;
    if (isfinite(number)) {
        if (number != 0) frexp(number, &exponent);
        exponent = number != 0 && exponent - 1 > p->low ? exponent - 1 : (int)p->low;
        bits = ((uint64_t)(exponent - p->low) << p->code) + (uint64_t)nearbyint(ldexp(fabs(number), p->code - exponent));
    }
    return (int64_t)((bits < p->high || isnan(number) ? bits : p->high) | (uint64_t)(signbit(number) != 0) << (p->bits - 1));
}

static int sk_take_number(const char *function, const sk_parameter *p, const sk_any *given, sk_value *to) {
    int64_t integer = given->value.integer;
    int is_integer = given->kind == SK_INTEGER || given->kind == SK_BOOL;
    if (!is_integer && !(given->kind == SK_REAL && p->form != 'i'))
        return sk_fail("TypeError", function, p, "is to be ", p->what);
    if (p->form != 'i') {
        double real = is_integer ? (double)integer : given->value.real;
        if (p->form == 'h') to->integer = sk_small(p, real);
        else to->real = real;
        return 0;
    }
    if (integer < p->low || (integer >= 0 && (uint64_t)integer > p->high))
        return sk_fail("ValueError", function, p, "is to be ", p->what);
    to->integer = integer;
    return 0;
}

/* Read all arguments. Returns 0, or -1 after an error was left with tvm-ffi. */
static int sk_take(const char *function, const sk_parameter *parameters, int32_t needed, const sk_any *args, int32_t count,
                   sk_value *values, sk_place *place) {
    char text[64];
    snprintf(text, sizeof text, "%d arguments are needed, got %d", (int)needed, (int)count);
    if (count != needed) return sk_fail("TypeError", function, NULL, text, "");
    for (int32_t i = 0; i < count; i++) {
        const sk_parameter *p = &parameters[i];
        int failed = p->form == 'a' ? sk_take_array(function, p, &args[i], &values[i], place)
                   : p->form == 's' ? sk_take_size(function, p, &args[i], &values[i])
                                    : sk_take_number(function, p, &args[i], &values[i]);
        if (failed) return failed;
    }
    return 0;
}

/* Put the status of a launch into words. */
static int sk_end(const char *function, const sk_parameter *parameters, int32_t count, int32_t status) {
    int32_t detail = status >> 8; /* the argument at fault, or what the driver said */
    char text[32] = "";
    if (status == 0) return 0;
    if ((status & 0xff) == @NAME@_DRIVER_FAILED) snprintf(text, sizeof text, " (CUresult %d)", (int)detail);
    else if (detail >= 1 && detail <= count)
        return sk_fail("ValueError", function, &parameters[detail - 1], "is refused: ", @name@_message(status));
    return sk_fail("RuntimeError", function, NULL, @name@_message(status), text);
}"""

_CUDA = """\
/* The primary contexts of devices, which stay. */
enum { SK_DEVICES = 64 };
static struct {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*get)(void **);
    int (*set)(void *);
} sk_context;
static void *sk_primary[SK_DEVICES];
static pthread_once_t sk_opened = PTHREAD_ONCE_INIT;
static pthread_mutex_t sk_retaining = PTHREAD_MUTEX_INITIALIZER;

static void sk_open_context(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *const names[] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxSetCurrent"};
    for (size_t i = 0; library != NULL && i < sizeof names / sizeof *names; i++) {
        void *address = dlsym(library, names[i]);
        memcpy((char *)&sk_context + i * sizeof(void *), &address, sizeof address);
    }
    if (sk_context.init != NULL && sk_context.init(0) != 0) sk_context.init = NULL;
}

/* Make the primary context of a device current. What was current comes back with sk_leave. */
static int sk_enter(const char *function, sk_place *place) {
    void *wanted = NULL;
    pthread_once(&sk_opened, sk_open_context);
    if (sk_context.init == NULL || place->ordinal < 0 || place->ordinal >= SK_DEVICES)
        return sk_fail("RuntimeError", function, NULL, "there is no CUDA driver, or no such device", "");
    pthread_mutex_lock(&sk_retaining);
    if (sk_primary[place->ordinal] == NULL) sk_context.retain(&sk_primary[place->ordinal], place->ordinal);
    wanted = sk_primary[place->ordinal];
    pthread_mutex_unlock(&sk_retaining);
    if (wanted == NULL) return sk_fail("RuntimeError", function, NULL, "there is no such device", "");
    int failed = sk_context.get(&place->before);
    place->is_pushed = place->before != wanted;
    if (failed || (place->is_pushed && sk_context.set(wanted)))
        return sk_fail("RuntimeError", function, NULL, "the driver cannot make the device current", "");
    return 0;
}

static void sk_leave(const sk_place *place) {
    if (place->is_pushed) sk_context.set(place->before);
}"""

_FUNCTION = """\
static const sk_parameter sk_of_@short@[] = {
@ROWS@
};
int32_t __tvm_ffi_@short@(void *self, const sk_any *args, int32_t count, sk_any *result) {
    sk_value v[@COUNT@];
    sk_place place = {0, 0, NULL, 0};
    int32_t status;
    (void)self, (void)result;
    if (sk_take("@short@", sk_of_@short@, @COUNT@, args, count, v, &place)) return -1;
@CALLS@
    return sk_fail("ValueError", "@short@", NULL, "there is no code for the device of the arrays", "");
}"""

_CALL = {
    "cpu": """\
    if (place.device == SK_CPU || place.device == 0) {
        status = @CALL@;
        return sk_end("@short@", sk_of_@short@, @COUNT@, status);
    }""",
    "cuda": """\
    if (place.device == SK_CUDA) {
        if (sk_enter("@short@", &place)) return -1;
        status = @CALL@;
        sk_leave(&place);
        return sk_end("@short@", sk_of_@short@, @COUNT@, status);
    }""",
}
_LAST = {"cpu": "NULL", "cuda": "TVMFFIEnvGetStream(SK_CUDA, place.ordinal)"}


def tvm_source(name: str, kernels: Sequence[ExportedKernel]) -> str:
    """Return the text of the source, which `NAME.h` belongs to."""
    by_name: dict[str, list[ExportedKernel]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, []).append(kernel)
    parts = [filled(_RUNTIME, name)]
    if any(kernel.target == "cuda" for kernel in kernels):
        parts.append(_CUDA)
    return "\n\n".join([*parts, *(_function(name, each) for each in by_name.values())]) + "\n"


def _function(name: str, kernels: Sequence[ExportedKernel]) -> str:
    """Return the function of one kernel. kernels: the kernel for each target; they take the same."""
    rows = [*_rows(kernels[0])]
    texts = {"short": kernels[0].name, "COUNT": max(len(rows), 1)}
    calls = "\n".join(
        filled(_CALL[each.target], name, CALL=f"{function_name(name, each)}({_passed(each)})", **texts)
        for each in kernels
    )
    return filled(_FUNCTION, name, CALLS=calls, ROWS=",\n".join(rows), **texts)


def _rows(kernel: ExportedKernel) -> Iterator[str]:
    for parameter in kernel.parameters:
        spec = parameter.spec
        if isinstance(spec, ScalarSpec):
            yield _number_row(parameter)
            continue
        rank, dtype = (spec.rank if isinstance(spec, ArraySpec) else -1), spec.dtype
        what = f"an array of {dtype.name}{f' of rank {rank}' if rank >= 0 else ''}"
        yield f'    {{"{parameter.name}", "{what}", \'a\', {dtype.dlpack}, {8 * dtype.itemsize}, {rank}, 0, 0}}'
    for each in kernel.sizes:
        yield f'    {{"{each}", "an int or a Shape of three axes at most", \'s\', 0, 0, 0, 0, 0}}'
    if kernel.takes_shared_bytes:
        yield '    {"shared_bytes", "uint32", \'i\', 0, 0, 0, 0, UINT32_MAX}'


def _number_row(parameter: CParameter) -> str:
    head, kind = f'    {{"{parameter.name}"', parameter.type
    if kind in ("float", "double"):
        return f"{head}, \"a float\", 'f', 0, 0, 0, 0, 0}}"
    if parameter.spec.dtype.is_float:
        width, digits, lowest, beyond = form_of(parameter.spec.dtype)
        return f"{head}, \"a float\", 'h', {digits}, {width}, 0, {lowest}, {beyond}}}"
    if parameter.spec.dtype.kind == "bool":
        return f"{head}, \"a bool\", 'i', 0, 0, 0, 0, 1}}"
    name = kind.removesuffix("_t")
    low = "0" if name.startswith("u") else f"{name.upper()}_MIN"
    return f"{head}, \"an integer that {name} holds\", 'i', 0, 0, 0, {low}, {name.upper()}_MAX}}"


def _passed(kernel: ExportedKernel) -> str:
    """Return the arguments of the call in C."""
    forms = []
    for each in kernel.parameters:
        member = "real" if each.type in ("float", "double") else "integer"
        forms.append(f"({each.type})v[{{}}].{member}" if isinstance(each.spec, ScalarSpec) else "&v[{}].array")
    forms += ["v[{}].size"] * len(kernel.sizes) + ["(uint32_t)v[{}].integer"] * kernel.takes_shared_bytes
    return ", ".join([*(each.format(place) for place, each in enumerate(forms)), _LAST[kernel.target]])
