/* Bytes that grow while they are written. */

#include "native.h"

void
zap_writer(Writer *w, const State *state)
{
    w->state = state;
    w->start = w->at = w->small;
    w->end = w->small + sizeof(w->small);
}

void
zap_free_writer(Writer *w)
{
    if (w->start != w->small) {
        PyMem_Free(w->start);
    }
}

PyObject *
zap_written(const Writer *w)
{
    return PyBytes_FromStringAndSize((const char *)w->start, w->at - w->start);
}

int
zap_grow(Writer *w, size_t size)
{
    size_t used = w->at - w->start, wanted = 2 * (w->end - w->start);
    if (size > PY_SSIZE_T_MAX / 4) {
        return 0;
    }
    while (wanted < used + size) {
        wanted *= 2;
    }
    uint8_t *old = w->start == w->small ? NULL : w->start;
    uint8_t *start = PyMem_Realloc(old, wanted);
    if (start == NULL) {
        return 0;
    }
    if (old == NULL) {
        memcpy(start, w->small, used);
    }
    w->start = start;
    w->at = start + used;
    w->end = start + wanted;
    return 1;
}

int
zap_write_bytes(Writer *w, const void *bytes, Py_ssize_t size)
{
    if (!zap_reserve(w, size)) {
        return 0;
    }
    memcpy(w->at, bytes, size);
    w->at += size;
    return 1;
}

/* Puts the length of what was written since `begin` into its place: the caller has left one byte
   for it there, and a longer one moves what was written. */
int
zap_close_extent(Writer *w, size_t begin, Py_ssize_t size_max)
{
    size_t size = (w->at - w->start) - begin - 1;
    if (size > (size_t)size_max || !zap_reserve(w, ZAP_VARINT_MAX)) {
        return 0;
    }
    uint8_t *end = w->at;
    w->at = w->start + begin;
    if (size < 64) {
        zap_put_varint(w, (int64_t)size);
        w->at = end;
        return 1;
    }
    int head = size < 1 << 8 ? 2 : size < 1 << 16 ? 3 : 4;      /* at most ZAP_VALUE_MAX */
    memmove(w->at + head, w->at + 1, size);
    zap_put_varint(w, (int64_t)size);
    w->at += size;
    return 1;
}
