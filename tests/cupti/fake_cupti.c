/* A libcupti for tests: it answers as it is told, and delivers the records that it is given. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void (*requested_t)(uint8_t **, size_t *, size_t *);
typedef void (*completed_t)(void *, uint32_t, uint8_t *, size_t, size_t);

static requested_t requested;
static completed_t completed;
static uint32_t version = 130001;
static int subscribe_status, register_status, enable_status, flush_status;
static size_t dropped;
static uint32_t enabled;
/* How often it has to be asked before it delivers, as after a profiler's end. */
static int deaf;
static struct { const uint8_t *data; size_t size; } queue[64];
static int queued;

void fake_reset(uint32_t new_version)
{
    version = new_version;
    subscribe_status = register_status = enable_status = flush_status = 0;
    dropped = enabled = queued = deaf = 0;
}
void fake_statuses(int subscribe, int reg, int enable, int flush)
{
    subscribe_status = subscribe;
    register_status = reg;
    enable_status = enable;
    flush_status = flush;
}
void fake_deaf(int registrations) { deaf = registrations; }
void fake_dropped(size_t count) { dropped = count; }
uint32_t fake_enabled(void) { return enabled; }
/* `data` has to live until it is flushed. */
void fake_deliver(const uint8_t *data, size_t size)
{
    queue[queued].data = data;
    queue[queued++].size = size;
}

int cuptiGetVersion(uint32_t *answer) { *answer = version; return 0; }
int cuptiSubscribe(void **handle, void *callback, void *data)
{
    *handle = &version;
    return subscribe_status;
}
int cuptiUnsubscribe(void *handle) { return handle == &version ? 0 : 1; }
int cuptiSetThreadIdType(int type) { return type == 1 ? 0 : 1; }
int cuptiActivityRegisterCallbacks(requested_t request, completed_t complete)
{
    if (register_status)
        return register_status;
    deaf -= deaf > 0;
    requested = request;
    completed = complete;
    return 0;
}
int cuptiActivityEnable(int kind)
{
    if (enable_status)
        return enable_status;
    enabled |= 1u << kind;
    return 0;
}
int cuptiActivityDisable(int kind) { enabled &= ~(1u << kind); return 0; }
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    *count = dropped;
    dropped = 0;
    return 0;
}
/* As CUPTI's, whose clock was found to be this one. */
int cuptiGetTimestamp(uint64_t *answer)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *answer = now.tv_sec * 1000000000ull + now.tv_nsec;
    return 0;
}
int cuptiActivityFlushAll(uint32_t flag)
{
    if (flush_status)
        return flush_status;
    if (deaf) {
        queued = 0;
        return 0;
    }
    for (int i = 0; i < queued; i++) {
        uint8_t *buffer = NULL;
        size_t size = 0, records = 0;
        requested(&buffer, &size, &records);
        if (!buffer || size < queue[i].size) {
            dropped++;
            continue;
        }
        memcpy(buffer, queue[i].data, queue[i].size);
        completed(NULL, 0, buffer, size, queue[i].size);
    }
    queued = 0;
    return 0;
}
