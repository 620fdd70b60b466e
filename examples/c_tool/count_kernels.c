/* A profiler in C: counts launches and host time of each kernel, and prints them at the end.
 *
 *     cc -shared -fPIC -o libcount_kernels.so examples/c_tool/count_kernels.c
 *     TKDEBUG_TOOL=$PWD/libcount_kernels.so tkdebug run examples/vector_add.py
 */
#include "tkdebug_tool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KERNELS 256

struct count {
    char name[128];
    uint64_t launches, entered; /* these differ where a launch failed or still runs */
    int64_t total_ns;
    int32_t registers;
};

static struct count counts[MOST_KERNELS];
static int kernels;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct count *count_of(const char *name) {
    for (int i = 0; i < kernels; i++)
        if (!strcmp(counts[i].name, name)) return &counts[i];
    if (kernels == MOST_KERNELS) return NULL;
    snprintf(counts[kernels].name, sizeof counts[kernels].name, "%s", name);
    return &counts[kernels++];
}

static void enter(const struct tkdebug_kernel *kernel) {
    pthread_mutex_lock(&lock);
    struct count *count = count_of(kernel->name);
    if (count) count->entered++;
    pthread_mutex_unlock(&lock);
}

static void leave(const struct tkdebug_kernel *kernel) {
    pthread_mutex_lock(&lock);
    struct count *count = count_of(kernel->name);
    if (count) {
        count->launches++;
        count->total_ns += kernel->duration_ns;
        count->registers = kernel->registers;
    }
    pthread_mutex_unlock(&lock);
}

static void print_counts(void) {
    for (int i = 0; i < kernels; i++) {
        const struct count *count = &counts[i];
        fprintf(stderr, "count_kernels: %s: %llu launches, %lld ns", count->name,
                (unsigned long long)count->launches, (long long)count->total_ns);
        if (count->launches && count->registers >= 0) fprintf(stderr, ", %d registers", count->registers);
        if (count->entered > count->launches)
            fprintf(stderr, ", %llu did not end", (unsigned long long)(count->entered - count->launches));
        fputc('\n', stderr);
    }
}

static const struct tkdebug_tool tool = {sizeof tool, 1, enter, leave};

const struct tkdebug_tool *tkdebug_tool_init(void) {
    atexit(print_counts);
    return &tool;
}
