/* A safetensors file. What is accepted has its tensors one behind the other to the file's end, and
 * a header written for them is accepted with the same tensors. */
#include "tests/fuzz/fuzz.h"

#include "common/files/safetensors.h"
#include "common/scoped.h"

#include <string.h>

static void check_rewritten(struct safetensors *header)
{
    scoped(buf_release) struct buf out = {0};
    scoped(safetensors_release) struct safetensors again = {0};
    struct reason reason;
    check(safetensors_put_header(&out, header->tensors, header->count, &reason) == ERR_OK);
    uint64_t end = header->count == 0 ? 0 : header->tensors[header->count - 1].end;
    check(safetensors_parse("file", buf_slice(&out), out.bytes + end, &again, &reason) == ERR_OK);
    check(again.count == header->count);
    for (size_t i = 0; i < again.count; i++) {
        const struct safetensors_tensor *old = safetensors_find(header, again.tensors[i].name);
        check(old != NULL);
        check(old->dtype == again.tensors[i].dtype);
        check(old->dims == again.tensors[i].dims);
        check(memcmp(old->shape, again.tensors[i].shape, sizeof old->shape) == 0);
        check(old->begin == again.tensors[i].begin && old->end == again.tensors[i].end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    scoped(safetensors_release) struct safetensors header = {0};
    struct reason reason;
    if (safetensors_parse("file", (struct slice){data, bytes}, bytes, &header, &reason) != ERR_OK)
        return 0;
    uint64_t at = header.buffer_offset;
    for (size_t i = 0; i < header.count; i++) {
        check(header.buffer_offset + header.tensors[i].begin == at);
        at = header.buffer_offset + header.tensors[i].end;
    }
    check(at == bytes);
    check_rewritten(&header);
    return 0;
}
