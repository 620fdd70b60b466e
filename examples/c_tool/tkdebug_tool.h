/* The interface between tkdebug and profilers written in C, version 1.
 *
 * A shared library exports tkdebug_tool_init, and the environment variable TKDEBUG_TOOL names the
 * library. Its functions are called in the thread that launches, before and after each launch.
 * Pointers are valid during the call. Later versions add fields at the end; size tells which. */
#ifndef TKDEBUG_TOOL_H
#define TKDEBUG_TOOL_H
#include <stdint.h>

struct tkdebug_frame {
    const char *function;
    const char *file;
    uint64_t line;
};

struct tkdebug_kernel {
    uint32_t size;           /* of this struct */
    uint32_t line;           /* at which source begins, 0: not known */
    uint64_t correlation_id; /* the same at enter and exit */
    const char *name;
    const char *file;        /* "": not known */
    const char *source;
    uint32_t grid[3];
    uint32_t num_warps;
    int32_t registers;       /* of a thread, -1: interpreted */
    int32_t shared_bytes;    /* of a block, -1: interpreted */
    uint64_t stream;         /* CUstream */
    int64_t duration_ns;     /* at exit, of the host; -1 at enter */
    const char *cubin;       /* NULL: interpreted */
    uint64_t cubin_bytes;
    const struct tkdebug_frame *callers; /* in the script, outermost first, for TKDEBUG_WANTS_CALLERS */
    uint64_t callers_count;
};

enum { TKDEBUG_WANTS_CALLERS = 1 };

struct tkdebug_tool {
    uint32_t size;
    uint32_t version; /* 1 */
    void (*enter)(const struct tkdebug_kernel *);
    void (*exit)(const struct tkdebug_kernel *);
    uint64_t wants; /* what costs time and is not always needed */
};

const struct tkdebug_tool *tkdebug_tool_init(void);
#endif
