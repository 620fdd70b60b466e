/* A tool of NVTX, as nsys is one: NVTX_INJECTION64_PATH names it, and it prints what it is told.
 *
 * The tables and numbers are those of NVTX 3 (nvtxDetail/nvtxTypes.h, nvToolsExt.h). */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

enum { EXPORT_CALLBACKS = 1, MODULE_CORE2 = 5 };
enum { RANGE_START = 2, RANGE_END = 3, REGISTER_A = 10, REGISTER_W = 11, CREATE_A = 12 };
enum { ASCII = 1, REGISTERED = 3 };

struct attributes {
    uint16_t version, size;
    uint32_t category, color_type, color, payload_type, reserved;
    uint64_t payload;
    uint32_t message_type;
    const char *message;
};
struct callbacks {
    size_t size;
    int (*table_of)(int module, void ****table, unsigned *size);
};

static uint64_t ranges;
static const char *kept(const char *text) { return strdup(text); }
static const char *kept_wide(const char *domain, const wchar_t *text)
{
    char narrow[256];
    snprintf(narrow, sizeof narrow, "%ls", text);
    return strdup(narrow);
}
static const char *kept_in(const char *domain, const char *text) { return strdup(text); }
static uint64_t started(const char *domain, const struct attributes *event)
{
    int known = event->message_type == ASCII || event->message_type == REGISTERED;
    fprintf(stderr, "start %s %s %llu\n", domain, known ? event->message : "?",
            (unsigned long long)++ranges);
    return ranges;
}
static void ended(const char *domain, uint64_t range)
{
    fprintf(stderr, "end %s %llu\n", domain, (unsigned long long)range);
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t))
{
    const struct callbacks *callbacks = export_table(EXPORT_CALLBACKS);
    void ***table;
    unsigned size;
    if (!callbacks || !callbacks->table_of(MODULE_CORE2, &table, &size) || size <= CREATE_A)
        return 0;
    *table[CREATE_A] = kept;
    *table[REGISTER_A] = kept_in;
    *table[REGISTER_W] = kept_wide;
    *table[RANGE_START] = started;
    *table[RANGE_END] = ended;
    return 1;
}
