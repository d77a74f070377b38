"""The fixed parts of an exported library, as C. `@name@` and `@NAME@` stand for the library's name."""


def filled(template: str, name: str, **texts: object) -> str:
    """Return a template with `@NAME@` and so on replaced."""
    for key, text in {"NAME": name.upper(), "name": name, **texts}.items():
        template = template.replace(f"@{key}@", str(text))
    return template


STATUSES = {
    "NO_ARRAY": "an array, its shape or its data is NULL",
    "WRONG_SIZE": "an array has another size than the kernel was compiled for, or than other arguments ask for",
    "WRONG_STRIDE": "an array has other strides than the kernel was compiled for",
    "MISALIGNED": "the data of an array lie at no multiple of what the kernel needs",
    "BAD_GRID": "a grid beyond the limits, or of an axis along which all programs would do the same",
    "BAD_BLOCK": "a block beyond the limits, or other than the one that the kernel was compiled for",
    "BAD_SHARED": "dynamic shared memory of another size than the kernel needs",
    "NO_MEMORY": "no memory",
    "MISSED_BARRIER": "some threads of a block reached a barrier that the others did not",
    "NO_CODE": "the library has no code for this device",
    "NO_DRIVER": "there is no CUDA driver",
    "NO_CONTEXT": "no CUDA context is current in this thread",
    "DRIVER_FAILED": "a call of the CUDA driver failed",
}
"""What a launch may give but 0, numbered from 1 on, and what it means."""


HEADER = """\
/* Kernels compiled by stagekit @VERSION@. Generated: changes are lost when it is exported again.

   Every function returns 0, or a status: its low byte is one of @NAME@_NO_ARRAY and so on, the rest the number of the argument
   at fault, from 1, or the driver's CUresult. @name@_message puts it into words. Nothing has run where a status is returned,
   but for @NAME@_MISSED_BARRIER and @NAME@_DRIVER_FAILED.

   Ownership: the caller owns all arrays, shapes and strides. Shapes and strides are read during the call only. Data is read and
   written until the kernel has ended: on the CPU before the call returns, on a GPU when the stream has come to its end.
   Streams: `stream` is a CUstream or cudaStream_t of the current context, NULL for the default stream; launches return at once.
   Contexts: kernels of a GPU run in the calling thread's current context (cudaSetDevice followed by any call makes one current),
   and are loaded once for each context at their first launch; @name@_unload frees what was loaded in the current one.
   Threads: every function may be called by any thread at any time, but for @name@_unload, during which no launch may be under
   way in that context. Nothing else is kept between calls.
   The numbers of elements of an array's type were fixed when the kernels were compiled; types are not checked. */

#ifndef @NAME@_H
#define @NAME@_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define @NAME@_ABI_VERSION @ABI@

/* shape: elements along each axis. strides: elements from one to the next along each axis; NULL for C order without gaps.
   An array that a kernel takes by its address alone needs neither. */
typedef struct @name@_array {
    void *data;
    const int64_t *shape;
    const int64_t *strides;
} @name@_array;

/* Blocks of a grid, or threads of a block; 1 along an axis that is not needed. */
typedef struct @name@_size {
    uint32_t x, y, z;
} @name@_size;

/* How a launch on the CPU is shared among threads: `run` calls `body(state, first, last)` for ranges of 0 to `count` that do not
   overlap, in any threads, and returns when all are done. NULL in the place of one runs all blocks in the calling thread. */
typedef struct @name@_parallel {
    void (*run)(void *context, int64_t count, void (*body)(void *state, int64_t first, int64_t last), void *state);
    void *context;
} @name@_parallel;

enum @name@_status {
@STATUSES@
};

/* The version of this interface that the library was compiled with, to be compared with @NAME@_ABI_VERSION. */
int32_t @name@_abi_version(void);

/* What a status means. The text is constant. */
const char *@name@_message(int32_t status);

/* Free the modules that were loaded in the current context; 0, or a status. Without kernels of a GPU it does nothing. */
int32_t @name@_unload(void);

@KERNELS@

#ifdef __cplusplus
}
#endif

#endif
"""

STATUS = """\
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int32_t @name@_abi_version(void) { return @NAME@_ABI_VERSION; }

const char *@name@_message(int32_t status) {
    switch (status & 0xff) {
    case 0: return "no error";
@MESSAGES@
    }
    return "an unknown status";
}

static inline int @name@_is_empty(const @name@_array *a, int rank) {
    for (int axis = 0; axis < rank; axis++)
        if (a->shape[axis] == 0) return 1;
    return 0;
}

static inline int64_t @name@_stride(const @name@_array *a, int rank, int axis) {
    if (a->strides != NULL) return a->strides[axis];
    int64_t step = 1;
    for (int other = rank - 1; other > axis; other--) step *= a->shape[other];
    return step;
}

static inline int @name@_is_packed(const @name@_array *a, int rank) {
    int64_t step = 1;
    if (a->strides == NULL || @name@_is_empty(a, rank)) return 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (a->shape[axis] != 1 && a->strides[axis] != step) return 0;
        step *= a->shape[axis];
    }
    return 1;
}"""

CPU_RUNTIME = """\
typedef int32_t (*sk_entry)(int64_t *, const int64_t *, int64_t, int64_t, void *, void *);

/* What a loop asks now and then whether to go on: always. */
static int32_t sk_ask(void *safepoint, int64_t place) {
    (void)safepoint, (void)place;
    return 0;
}

typedef struct sk_job {
    sk_entry entry;
    int64_t *slots;
    const int64_t *grid;
    int64_t scratch_bytes;
    int32_t status;
} sk_job;

static void @name@_blocks(void *state, int64_t first, int64_t last) {
    sk_job *job = state;
    int64_t size = (job->scratch_bytes + @ALIGN@ - 1) / @ALIGN@ * @ALIGN@;
    void *scratch = NULL;
    if (size > 0 && (scratch = aligned_alloc(@ALIGN@, (size_t)size)) == NULL) {
        __atomic_store_n(&job->status, @NAME@_NO_MEMORY, __ATOMIC_RELAXED);
        return;
    }
    int64_t safepoint[@SAFEPOINT@] = {(int64_t)(intptr_t)sk_ask, INT64_MAX / 2, INT64_MAX / 2};
    if (job->entry(job->slots, job->grid, first, last, scratch, safepoint) != 0)
        __atomic_store_n(&job->status, @NAME@_MISSED_BARRIER, __ATOMIC_RELAXED);
    free(scratch);
}

static int32_t @name@_run(sk_entry entry, int64_t *slots, const int64_t *grid, int64_t scratch_bytes,
                          const @name@_parallel *parallel) {
    sk_job job = {entry, slots, grid, scratch_bytes, 0};
    int64_t blocks = grid[0] * grid[1] * grid[2];
    if (parallel == NULL) @name@_blocks(&job, 0, blocks);
    else parallel->run(parallel->context, blocks, @name@_blocks, &job);
    return __atomic_load_n(&job.status, __ATOMIC_RELAXED);
}"""

NO_GPU = "int32_t @name@_unload(void) { return 0; }"

CUDA_RUNTIME = """\
#include <dlfcn.h>
#include <pthread.h>

/* Code for one version of GPUs: a cubin runs on its own major version from its minor version on, PTX on all that follow. */
typedef struct sk_image {
    const unsigned char *code;
    const char *entry;
    int capability, is_cubin, is_exact;
} sk_image;

enum { SK_CONTEXTS = 64 };

typedef struct sk_loaded {
    void *context, *module, *function;
    int64_t allowed;
} sk_loaded;

typedef struct sk_module {
    const sk_image *images;
    int image_count, count;
    sk_loaded loaded[SK_CONTEXTS];
} sk_module;

static struct {
    int (*get_context)(void **);
    int (*get_device)(int *);
    int (*get_attribute)(int *, int, int);
    int (*load)(void **, const void *);
    int (*unload)(void *);
    int (*get_function)(void **, void *, const char *);
    int (*set_attribute)(void *, int, int);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
} sk_driver;

static pthread_mutex_t sk_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t sk_once = PTHREAD_ONCE_INIT;
static int sk_has_driver;

static void sk_open(void) {
    static const char *const names[] = {"cuCtxGetCurrent",  "cuCtxGetDevice", "cuDeviceGetAttribute",
                                        "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction",
                                        "cuFuncSetAttribute", "cuLaunchKernel"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *address = dlsym(library, names[i]);
        if (address == NULL) return;
        memcpy((char *)&sk_driver + i * sizeof(void *), &address, sizeof address);
    }
    sk_has_driver = 1;
}

static int32_t @name@_failed(int result) { return @NAME@_DRIVER_FAILED | result << 8; }

/* Return what fits a GPU: the cubin of the newest version that it runs, else the newest PTX. */
static const sk_image *sk_fitting(const sk_module *module, int capability) {
    const sk_image *best = NULL;
    for (int i = 0; i < module->image_count; i++) {
        const sk_image *each = &module->images[i];
        int fits = each->is_exact ? each->capability == capability : each->capability <= capability;
        if (each->is_cubin) fits = fits && each->capability / 10 == capability / 10;
        if (!fits) continue;
        int rank = each->capability + (each->is_cubin ? 10000 : 0);
        if (best == NULL || rank > best->capability + (best->is_cubin ? 10000 : 0)) best = each;
    }
    return best;
}

/* Find the kernel in a context, or load it there. The lock is held. */
static int32_t @name@_load(sk_module *module, void *context, int64_t static_bytes, sk_loaded **found) {
    int device, major, minor, result;
    for (int i = 0; i < module->count; i++)
        if (module->loaded[i].context == context) {
            *found = &module->loaded[i];
            return 0;
        }
    if (module->count == SK_CONTEXTS) return @NAME@_NO_MEMORY;
    if ((result = sk_driver.get_device(&device)) || (result = sk_driver.get_attribute(&major, 75, device)) ||
        (result = sk_driver.get_attribute(&minor, 76, device)))
        return @name@_failed(result);
    const sk_image *image = sk_fitting(module, 10 * major + minor);
    if (image == NULL) return @NAME@_NO_CODE;
    sk_loaded loaded = {context, NULL, NULL, @SHARED@ - static_bytes};
    if ((result = sk_driver.load(&loaded.module, image->code))) return @name@_failed(result);
    if ((result = sk_driver.get_function(&loaded.function, loaded.module, image->entry))) {
        sk_driver.unload(loaded.module);
        return @name@_failed(result);
    }
    module->loaded[module->count] = loaded;
    *found = &module->loaded[module->count++];
    return 0;
}

static int32_t @name@_enqueue(sk_module *module, const int64_t *g, const int64_t *b, int64_t shared,
                              int64_t static_bytes, void **pointers, void *stream) {
    void *context = NULL, *function = NULL;
    sk_loaded *loaded = NULL;
    int result;
    pthread_once(&sk_once, sk_open);
    if (!sk_has_driver) return @NAME@_NO_DRIVER;
    if (sk_driver.get_context(&context) || context == NULL) return @NAME@_NO_CONTEXT;
    pthread_mutex_lock(&sk_lock);
    int32_t status = @name@_load(module, context, static_bytes, &loaded);
    if (status == 0 && shared > loaded->allowed) { /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
        if ((result = sk_driver.set_attribute(loaded->function, 8, (int)shared))) status = @name@_failed(result);
        else loaded->allowed = shared;
    }
    if (status == 0) function = loaded->function;
    pthread_mutex_unlock(&sk_lock);
    if (status) return status;
    result = sk_driver.launch(function, (unsigned)g[0], (unsigned)g[1], (unsigned)g[2], (unsigned)b[0], (unsigned)b[1],
                              (unsigned)b[2], (unsigned)shared, stream, pointers, NULL);
    return result ? @name@_failed(result) : 0;
}

/* Free the modules of one kernel in a context. The lock is held. */
static int32_t @name@_forget(sk_module *module, void *context) {
    int32_t status = 0;
    for (int i = 0; i < module->count; i++)
        if (module->loaded[i].context == context) {
            int result = sk_driver.unload(module->loaded[i].module);
            if (result) status = @name@_failed(result);
            module->loaded[i--] = module->loaded[--module->count];
        }
    return status;
}"""

UNLOAD = """\
int32_t @name@_unload(void) {
    static sk_module *const modules[] = {@MODULES@};
    void *context = NULL;
    int32_t status = 0;
    pthread_once(&sk_once, sk_open);
    if (!sk_has_driver) return 0;
    if (sk_driver.get_context(&context) || context == NULL) return @NAME@_NO_CONTEXT;
    pthread_mutex_lock(&sk_lock);
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        int32_t failed = @name@_forget(modules[i], context);
        if (failed) status = failed;
    }
    pthread_mutex_unlock(&sk_lock);
    return status;
}"""
