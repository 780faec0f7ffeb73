/* The optional accelerator of zapdb's codec: what its files share.

   It knows valid, ordinary records alone. Whatever else it meets, it declines: it drops what it has
   made and calls the generated Python function of the same layout with the same arguments, which
   returns or raises what is right. So there is no text of an error here and no decision, and the
   only possible bug is to accept, or to write, what Python would not.

   Whatever is wrong is noted in the reader or writer, once, and what was made is dropped in the
   end; a function that returns an object declines with NULL, too. In all these cases an exception
   may be set (see zap_forget()), and what is read or written may be at any place. */

#ifndef ZAPDB_NATIVE_H
#define ZAPDB_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#ifdef Py_GIL_DISABLED
#  error "free-threaded builds of Python use the pure codec"
#endif

/* Raised whenever native.py would give Plan something else, or expect something else of it. */
#define ZAP_INTERFACE 7

/* As in zapdb/limits.py; native.py gives the others with each field. */
#define ZAP_KEY_MAX 1024
#define ZAP_DEPTH_MAX 64

/* Of the accelerator alone. */
#define ZAP_SMALL_RECORD 512    /* bytes that are written without an allocation */
#define ZAP_LOST 2              /* there was no memory for more */
#define ZAP_SCALAR_MAX 16       /* bytes of any value of a fixed size, and of a varint or a head */

/* Of the formats: see docs/format. */
#define ZAP_SIGN ((uint64_t)1 << 63)

typedef struct {
    PyObject *data;                             /* bytes, which the caller keeps */
    const uint8_t *start, *at, *end;
    int is_wrong;                               /* something is missing, or not in its only form */
    int has_blob;
} Reader;

typedef struct {
    uint8_t *start, *at, *end;
    int is_wrong;                               /* 1: a value is not ordinary; and ZAP_LOST: what
                                                   was written is lost, too */
    uint8_t small[ZAP_SMALL_RECORD];
} Writer;

/* From STRING on, values have their length before them. FIXED and EXTENT are stepped over. NAMED is
   what has no bytes: a field of the key among those of the record, which may be given. */
#define ZAP_KINDS(KIND) \
    KIND(INTEGER) KIND(DECIMAL) KIND(DATE) KIND(ENUM) KIND(BOOLEAN) KIND(UNSIGNED) KIND(TIMESTAMP) \
    KIND(ZONED) KIND(FLOAT) KIND(PYTHON) KIND(NAMED) KIND(FIXED) KIND(ESCAPED_STRING) \
    KIND(ESCAPED_BINARY) KIND(KEY) KIND(STRING) KIND(BINARY) KIND(EXTENT) KIND(JSON) KIND(LIST) \
    KIND(STRUCT)
#define ZAP_KIND_ITEM(NAME) ZAP_##NAME,
typedef enum { ZAP_KINDS(ZAP_KIND_ITEM) } Kind;

/* Whatever is at a place in an object: an item of a slot. */
#define ZAP_SLOT(OBJECT, OFFSET) (*(PyObject **)((char *)(OBJECT) + (OFFSET)))

/* A part of a record, a struct, a list or a key; plan.c makes it of a tuple, which it refers to. */
typedef struct {
    PyObject *name;
    PyObject *otherwise;                        /* the default; Ellipsis: a value is required */
    Py_ssize_t offset;                          /* in the object; -1: not wanted */
    int bit;                                    /* of presence; -1: always present */
    int order;                                  /* in an index's key: 1, or -1 if inverted */
    int kind;
    Py_ssize_t number;                          /* the scale, or the most bytes of a value */
    PyObject *decode, *encode;                  /* Python's own; encode is None if a value may
                                                   become a blob, and for indexes */
    PyObject *first, *second;                   /* of an enum: names by number, numbers by name;
                                                   of local times: zones, as far as Python has met
                                                   them; of a decimal: multiply, its unit */
    const struct Plan *parts;                   /* of a struct, list, key or UUID; else NULL */
    void *datetime;                             /* PyDateTime_CAPI */
} Field;

/* The fields of a table, index, struct or key, in the order of their bytes. */
typedef struct Plan {
    int method;                                 /* what its function does: see plan.c */
    Py_ssize_t nargs;
    PyTypeObject *type;                         /* of records, structs, UUIDs, and keys: tuple */
    const struct Plan *key;                     /* of records, if any field of it is wanted */
    PyObject *python;                           /* does the same */
    int optional;                               /* so many fields have a bit of presence */
    int is_whole;                               /* there are no bytes behind these fields */
    Py_ssize_t count;
    Field fields[];
} Plan;

/* The UTF-8 of a string: its own, or of another owner, so that the string gets none. */
typedef struct {
    PyObject *owner;
    const char *bytes;
    Py_ssize_t size;
} Text;

/* bytes.c */
int64_t zap_read_varint(Reader *);
void zap_put_varint(Writer *, int64_t value);
void zap_close_extent(Writer *, size_t begin, Py_ssize_t size_max);
void zap_grow(Writer *, size_t size);
void zap_write_bytes(Writer *, const void *bytes, Py_ssize_t size);
void zap_write_object(Writer *, PyObject *bytes);
PyObject *zap_text(const void *, Py_ssize_t size);
Text zap_open_text(Writer *, PyObject *string);
void zap_write_text(Writer *, Text);

/* cbor.c, scalars.c */
PyObject *zap_read_cbor(Reader *, int depth);
void zap_write_cbor(Writer *, PyObject *value, int depth);
PyObject *zap_read_scalar(Reader *, const Field *);
void zap_write_scalar(Writer *, const Field *, PyObject *value);

/* parts.c */
int zap_read_parts(Reader *, const Plan *, PyObject *object);
Py_ssize_t zap_write_parts(Writer *, const Plan *, PyObject *source, PyObject *const *values);

/* Forgets an ordinary exception; false for one that has to get through: KeyboardInterrupt. */
static inline int
zap_forget(void)
{
    int is_ordinary = PyErr_Occurred() == NULL || PyErr_ExceptionMatches(PyExc_Exception);
    if (is_ordinary) {
        PyErr_Clear();
    }
    return is_ordinary;
}

/* Steps over bytes and returns them; NULL if there are fewer. Whatever is read, is taken here. */
static inline const uint8_t *
zap_take(Reader *r, uint64_t size)
{
    const uint8_t *taken = r->at;
    if (size > (uint64_t)(r->end - taken)) {
        r->is_wrong = 1;
        return NULL;
    }
    r->at += size;
    return taken;
}

static inline uint64_t
zap_read_number(Reader *r, int size)
{
    const uint8_t *bytes = zap_take(r, size);
    uint64_t number = 0;
    for (int i = 0; bytes != NULL && i < size; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

/* Makes room for bytes. If there is none, what is written goes to the start again, which has room
   for ZAP_SCALAR_MAX. */
static inline void
zap_reserve(Writer *w, size_t size)
{
    if ((size_t)(w->end - w->at) < size) {
        zap_grow(w, size);
    }
}

static inline void
zap_put(Writer *w, uint64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--) {
        w->at[i] = (uint8_t)value;
        value >>= 8;
    }
    w->at += size;
}

#endif
