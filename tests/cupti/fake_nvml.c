/* NVML and the few functions of the driver that lead to it, for tests: GPU 0 has a UUID, 1 none. */
#include <string.h>

static unsigned clock_mhz = 1980;
static unsigned long long reasons;

void fake_state(unsigned mhz, unsigned long long bits) { clock_mhz = mhz; reasons = bits; }

int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal > 1 ? 101 : 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    memset(uuid, 0x10 + device, 16);
    return 0;
}
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    *handle = &clock_mhz;
    return strcmp(uuid, "GPU-10101010-1010-1010-1010-101010101010") ? 6 : 0;
}
int nvmlDeviceGetName(void *handle, char *name, unsigned size) { strcpy(name, "NVIDIA H200"); return 0; }
int nvmlDeviceGetClockInfo(void *handle, int clock, unsigned *mhz)
{
    *mhz = clock == 2 ? 3201 : clock_mhz;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *bits)
{
    *bits = reasons;
    return 0;
}
int nvmlDeviceGetPerformanceState(void *handle, int *state) { *state = 0; return 0; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *c) { *c = 39; return 0; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) { *mw = 77991; return 0; }
