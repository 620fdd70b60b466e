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
static void (*called)(void *, uint32_t, uint32_t, const void *);
static int is_subscribed, calls_enabled;
static struct { const uint8_t *data; size_t size; } queue[64];
static int queued;
static int timestamp_takes_ns;

void fake_reset(uint32_t new_version)
{
    version = new_version;
    subscribe_status = register_status = enable_status = flush_status = 0;
    dropped = enabled = queued = 0;
    is_subscribed = calls_enabled = 0;
    timestamp_takes_ns = 0;
}
void fake_slow_timestamps(int takes_ns) { timestamp_takes_ns = takes_ns; }
void fake_statuses(int subscribe, int reg, int enable, int flush)
{
    subscribe_status = subscribe;
    register_status = reg;
    enable_status = enable;
    flush_status = flush;
}
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
    if (is_subscribed && !subscribe_status)
        return 39;
    is_subscribed = !subscribe_status;
    called = callback;
    return subscribe_status;
}
int cuptiUnsubscribe(void *handle)
{
    is_subscribed = calls_enabled = 0;
    return handle == &version ? 0 : 1;
}
int fake_subscribed(void) { return is_subscribed; }
int cuptiEnableCallback(uint32_t enable, void *handle, uint32_t domain, uint32_t number)
{
    calls_enabled = enable && domain == 1 && number == 652;
    return handle == &version ? 0 : 1;
}
/* CUpti_CallbackData. */
typedef struct {
    uint32_t site;
    const char *function;
    const void *parameters;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *own;
    uint32_t correlation;
} call_t;
/* CUlaunchConfig, and the parameters of cuLaunchKernelEx. */
typedef struct { uint32_t grid[3], block[3], shared; void *stream, *attributes; uint32_t count; } config_t;
typedef struct { const config_t *config; void *function, **parameters, **extra; } parameters_t;
static int capturing_status;
void fake_capturing(int status) { capturing_status = status; }
/* Streams of odd handles are captured. */
int fake_is_capturing(void *stream, int *answer)
{
    *answer = (uintptr_t)stream & 1;
    return capturing_status;
}
/* What cuLaunchKernelEx does while a client hears of it. */
void fake_call(uint32_t correlation, int result, void *stream)
{
    config_t config = {{1, 1, 1}, {32, 1, 1}, 0, stream, NULL, 0};
    parameters_t parameters = {&config, NULL, NULL, NULL};
    call_t data = {0, "cuLaunchKernelEx", &parameters, NULL, NULL, NULL, 1, NULL, correlation};
    if (!calls_enabled)
        return;
    called(NULL, 1, 652, &data);
    data.site = 1;
    data.result = &result;
    called(NULL, 1, 652, &data);
}
int cuptiSetThreadIdType(int type) { return type == 1 ? 0 : 1; }
int cuptiActivityRegisterCallbacks(requested_t request, completed_t complete)
{
    if (register_status)
        return register_status;
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
    struct timespec now, slept = {0, timestamp_takes_ns};
    if (timestamp_takes_ns)
        nanosleep(&slept, NULL);
    clock_gettime(CLOCK_REALTIME, &now);
    *answer = now.tv_sec * 1000000000ull + now.tv_nsec;
    return 0;
}
int cuptiActivityFlushAll(uint32_t flag)
{
    if (flush_status)
        return flush_status;
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

/* PC sampling, with the structures of cupti_pcsampling.h (CUDA 12.4 to 13.0). */
#define PACKED __attribute__((packed, aligned(8)))
typedef struct PACKED { uint32_t reason, samples; } stall_t;
typedef struct PACKED {
    size_t size;
    uint64_t crc, pc;
    uint32_t function, pad;
    const char *name;
    size_t reasons;
    stall_t *stalls;
    uint32_t correlation;
} pc_t;
typedef struct PACKED {
    size_t size, room;
    uint64_t samples, dropped;
    size_t count, left;
    uint64_t range;
    pc_t *pcs;
    uint64_t not_of_users;
    uint8_t is_full;
} samples_t;
typedef struct { size_t size; void *private, *context; } context_t;
typedef struct { context_t head; size_t *count; } reason_count_t;
typedef struct { context_t head; size_t count; uint32_t *numbers; char **names; } reasons_t;
typedef struct { uint32_t kind, status; union { void *pointer; uint32_t number; uint64_t words[3]; } data; } setting_t;
typedef struct { context_t head; size_t count; setting_t *settings; } settings_t;
typedef struct { context_t head; samples_t *data; } take_t;
typedef struct { size_t size, bytes; const uint8_t *cubin; uint64_t crc; } crc_t;

static const char *const REASONS[] = {
    "smsp__pcsamp_warps_issue_stalled_long_scoreboard",
    "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
    "smsp__pcsamp_warps_issue_stalled_wait",
    "smsp__pcsamp_sample_count",
};
static int sampling_status, sampled, last_period;
static size_t wanted;
static samples_t *configured;

void fake_sampling(int status) { sampling_status = status; sampled = 0; last_period = 0; }
/* How often contexts were sampled and let go of again. */
int fake_sampled(void) { return sampled; }
int fake_period(void) { return last_period; }
int cuptiPCSamplingEnable(context_t *of) { if (!sampling_status) sampled++; return sampling_status; }
int cuptiPCSamplingGetNumStallReasons(reason_count_t *of) { *of->count = 4; return 0; }
int cuptiPCSamplingGetStallReasons(reasons_t *of)
{
    for (int n = 0; n < 4; n++) {
        of->numbers[n] = 30 + n;
        strcpy(of->names[n], REASONS[n]);
    }
    return of->count == 4 ? 0 : 1;
}
int cuptiPCSamplingSetConfigurationAttribute(settings_t *of)
{
    for (size_t n = 0; n < of->count; n++) {
        if (of->settings[n].kind == 1)
            last_period = of->settings[n].data.number;
        if (of->settings[n].kind == 2)
            wanted = of->settings[n].data.words[0];
        if (of->settings[n].kind == 8)
            configured = of->settings[n].data.pointer;
    }
    return wanted == 2 && configured ? 0 : 1;
}
/* Of each of two instructions, as many samples as its place says, and ten times that. */
static void fill(samples_t *data, uint64_t crc)
{
    data->count = 2;
    data->samples = 40;
    data->dropped = 3;
    data->left = 0;
    for (size_t place = 0; place < 2; place++) {
        pc_t *one = data->pcs + place;
        one->crc = crc;
        one->pc = 16 * place;
        one->name = "kernel";
        one->reasons = 2;
        one->stalls[0] = (stall_t){30, place + 1};
        one->stalls[1] = (stall_t){32, 10 * (place + 1)};
    }
}
int cuptiPCSamplingGetData(take_t *of) { fill(of->data, 77); return sampling_status; }
int cuptiPCSamplingDisable(context_t *of) { fill(configured, 78); sampled--; return 0; }
int cuptiGetCubinCrc(crc_t *of)
{
    of->crc = 0;
    for (size_t place = 0; place < of->bytes; place++)
        of->crc += of->cubin[place];
    return 0;
}
