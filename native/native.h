/* The optional accelerator of zapdb's codec: what its files share.

   It knows valid, ordinary records alone. Whatever else it meets, it declines: it drops what it has
   made and calls the generated Python function of the same layout with the same arguments, which
   returns or raises what is right. So there is no text of an error here and no decision, and the
   only possible bug is to accept, or to write, what Python would not.

   A function that returns int returns true when it has done its work, and false when it declines.
   A function that returns an object declines with NULL. In both cases an exception may be set (see
   zap_forget()), and what is read or written may be at any place. */

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
#define ZAP_INTERFACE 5

/* As in zapdb/limits.py; native.py gives the others with each field. */
#define ZAP_KEY_MAX 1024
#define ZAP_DEPTH_MAX 64

/* Of the accelerator alone. */
#define ZAP_SMALL_RECORD 512    /* bytes that are written without an allocation */
#define ZAP_KNOWN_KEYS 1024     /* keys of JSON objects that are kept */
#define ZAP_KNOWN_KEY_MAX 32    /* bytes of such a key */
#define ZAP_SCALAR_MAX 16       /* bytes of any value of a fixed size, and of a varint or a head */

/* Of the formats: see docs/formats. */
#define ZAP_SIGN ((uint64_t)1 << 63)
#define ZAP_QUIET_NAN (0x7FF8000000000000 | ZAP_SIGN)   /* as it is stored */
#define ZAP_ESCAPED_END "\0\1" /* of a text without zeros: what comes behind it */
#define ZAP_MICROSECONDS 1000000
#define ZAP_DAY_SECONDS 86400
#define ZAP_MARCH_OF_YEAR_0 719468      /* days before 1970-01-01 */

typedef struct {
    void *datetime;                             /* PyDateTime_CAPI */
    PyObject *known_keys[ZAP_KNOWN_KEYS];       /* by some of their bytes */
} State;

typedef struct {
    State *state;
    PyObject *data;                             /* bytes, which the caller keeps */
    const uint8_t *start, *at, *end;
    int is_wrong;                               /* something is missing, or not in its only form:
                                                   what was made of it is to be dropped */
    int has_blob;
} Reader;

typedef struct {
    const State *state;
    uint8_t *start, *at, *end;
    uint8_t small[ZAP_SMALL_RECORD];
} Writer;

/* From STRING on, values have their length before them. FIXED and EXTENT are stepped over. */
#define ZAP_KINDS(KIND) \
    KIND(INTEGER) KIND(DECIMAL) KIND(DATE) KIND(ENUM) KIND(BOOLEAN) KIND(UUID) KIND(TIMESTAMP) \
    KIND(ZONED) KIND(FLOAT) KIND(KEY) KIND(ESCAPED_STRING) KIND(ESCAPED_BINARY) KIND(PYTHON) \
    KIND(FIXED) KIND(STRING) KIND(BINARY) KIND(EXTENT) KIND(JSON) KIND(LIST) KIND(STRUCT)
#define ZAP_KIND_ITEM(NAME) ZAP_##NAME,
typedef enum { ZAP_KINDS(ZAP_KIND_ITEM) } Kind;

#define ZAP_IS_BINARY(FIELD) ((FIELD)->kind == ZAP_BINARY || (FIELD)->kind == ZAP_ESCAPED_BINARY)

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
} Field;

typedef enum {
    ZAP_DECODE, ZAP_ENCODE, ZAP_SKIP, ZAP_ENCODE_KEY, ZAP_KEY_OF, ZAP_DEFER
} Function;

/* The fields of a table, index, struct or key, in the order of their bytes. */
typedef struct Plan {
    PyObject_VAR_HEAD
    State *state;
    PyObject *given;                            /* the arguments: all else refers to them */
    PyTypeObject *type;                         /* of records and structs; NULL of a tuple */
    Py_ssize_t keys;                            /* how many fields are of the record's key */
    Py_ssize_t reach;                           /* up to which ones are read */
    Py_ssize_t optional;
    PyObject *functions;                        /* Python's own, in the order above */
    Field fields[];
} Plan;

/* Bytes, or the UTF-8 of a string: its own, or in `owner`, so that none is left in the string. */
typedef struct {
    PyObject *owner;
    const void *bytes;
    Py_ssize_t size;
} Text;

/* bytes.c */
int64_t zap_read_varint(Reader *);
void zap_read_extent(Reader *, Py_ssize_t size_max);
void zap_put_varint(Writer *, int64_t value);
int zap_close_extent(Writer *, size_t begin, Py_ssize_t size_max);
int zap_grow(Writer *, size_t size);
int zap_write_bytes(Writer *, const void *bytes, Py_ssize_t size);
PyObject *zap_text(const void *, Py_ssize_t);
int zap_open_text(PyObject *, int is_binary, Text *);

/* cbor.c */
PyObject *zap_read_cbor(Reader *, int depth);
int zap_write_cbor(Writer *, PyObject *value, int depth);

/* reading.c, writing.c */
int zap_read_parts(Reader *, const Plan *, Py_ssize_t from, Py_ssize_t to, PyObject *object);
Py_ssize_t zap_write_parts(Writer *, const Plan *, Py_ssize_t from, Py_ssize_t to,
                           PyObject *source);

extern PyType_Spec zap_plan_spec;

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

/* Makes room: true if that many bytes can be put. */
static inline int
zap_reserve(Writer *w, size_t size)
{
    return (size_t)(w->end - w->at) >= size || zap_grow(w, size);
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
