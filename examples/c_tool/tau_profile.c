/* Launches by calling context, as a profile of TAU: what pprof, ParaProf and hatchet read.
 *
 *     cc -shared -fPIC -o libtau_profile.so examples/c_tool/tau_profile.c
 *     TKDEBUG_TOOL=$PWD/libtau_profile.so tkdebug run examples/matmul.py
 *
 * It writes profile.RANK.0.0 into PROFILEDIR: calls are launches, times the host's, in us. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tkdebug_tool.h"

struct node { /* node 0 is the application; a node's parent stands before it */
    char label[512];
    int parent, launches;
    double own_us, total_us;
};
enum { MOST_NODES = 4096 };
static struct node nodes[MOST_NODES] = {{.label = ".TAU application", .parent = -1}};
static int count = 1;
static double began_us;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}
static int child(int parent, const char *name, const char *file, uint64_t line) {
    char label[sizeof nodes->label];
    snprintf(label, sizeof label, "%.200s [{%.270s} {%lu}]", name, file, (unsigned long)line);
    for (int i = parent + 1; i < count; i++)
        if (nodes[i].parent == parent && !strcmp(nodes[i].label, label)) return i;
    if (count == MOST_NODES) return parent; /* counted at its caller */
    strcpy(nodes[count].label, label);
    nodes[count].parent = parent;
    return count++;
}
static void leave(const struct tkdebug_kernel *kernel) {
    const struct tkdebug_frame *call = kernel->callers, *end = call + kernel->callers_count;
    int at = 0;
    pthread_mutex_lock(&lock);
    for (; call < end; call++) at = child(at, call->function, call->file, call->line);
    at = child(at, kernel->name, kernel->file, kernel->line);
    nodes[at].own_us += kernel->duration_ns / 1e3;
    for (; at >= 0; at = nodes[at].parent) {
        nodes[at].launches++;
        nodes[at].total_us += kernel->duration_ns / 1e3;
    }
    pthread_mutex_unlock(&lock);
}
static void write_path(FILE *file, int at) {
    if (at) write_path(file, nodes[at].parent);
    fprintf(file, "%s%s", at ? " => " : "\"", nodes[at].label);
}
static void write_profile(void) {
    const char *folder = getenv("PROFILEDIR"), *rank = getenv("RANK");
    char path[4096];
    snprintf(path, sizeof path, "%s/profile.%s.0.0", folder ? folder : ".", rank ? rank : "0");
    FILE *file = fopen(path, "w");
    if (!file) { perror(path); return; }
    double wall_us = now_us() - began_us;
    fprintf(file, "%d templated_functions_MULTI_TIME\n# Name Calls Subrs Excl Incl ProfileCalls # "
            "<metadata><attribute><name>Metric Name</name><value>TIME</value></attribute></metadata>\n"
            "\"%s\" 1 %d %.0f %.0f 0 GROUP=\"TAU_DEFAULT\"\n", count, nodes[0].label, count - 1,
            wall_us - nodes[0].total_us, wall_us);
    for (int i = 1; i < count; i++) {
        write_path(file, i);
        fprintf(file, "\" %d 0 %.3f %.3f 0 GROUP=\"TAU_CALLPATH\"\n", nodes[i].launches,
                nodes[i].own_us, nodes[i].total_us);
    }
    fputs("0 aggregates\n", file);
    fclose(file);
}
static const struct tkdebug_tool tool = {sizeof tool, 1, NULL, leave, TKDEBUG_WANTS_CALLERS};
const struct tkdebug_tool *tkdebug_tool_init(void) {
    began_us = now_us();
    atexit(write_profile);
    return &tool;
}
