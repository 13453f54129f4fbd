/* StickyInvoc client, C ABI. Link -lstickyinvoc (pkg-config stickyinvoc).
 *
 * An invocation calls sti_attach once, reads tensors in place through the pointers that
 * sti_tensor_find gives, and calls sti_detach, or just exits, or is killed: the daemon sees it.
 * Nothing here prints, exits, installs a signal handler or changes a global. Functions that can
 * fail return 0 or a negative sti_code, and fill the caller's sti_error when it is not NULL.
 *
 * Thread: an attached state may be read from many threads at once; attach and detach it from one.
 * Fork: a state belongs to the process that attached it. In a child of fork() every function on it
 *   fails with STI_INVALID_ARGUMENT (attach anew), and sti_detach there does not end the parent's
 *   lease. Pointers into tensors stay readable in the child.
 */
#ifndef STICKYINVOC_STICKYINVOC_H_
#define STICKYINVOC_STICKYINVOC_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STI_EXPORT __attribute__((visibility("default")))

/* Version of this header; sti_version() gives that of the library at run time. */
#define STI_VERSION_MAJOR 0
#define STI_VERSION_MINOR 1
#define STI_VERSION_PATCH 0

/* What a caller can do about a failure. Functions return the negative. */
typedef enum sti_code {
  STI_OK = 0,
  STI_INVALID_ARGUMENT = 1,  /* the caller's mistake; the same call fails again */
  STI_NOT_FOUND = 2,         /* no such state, tensor or asset */
  STI_UNAVAILABLE = 3,       /* try again: no daemon, loading, draining, deadline passed */
  STI_OUT_OF_MEMORY = 4,     /* no address space, no descriptors, lease limit; nothing changed */
  STI_PERMISSION_DENIED = 5, /* the message names the rule */
  STI_CORRUPT = 6,           /* what came from the daemon does not check, or another digest */
  STI_DEVICE_LOST = 7,       /* the device context is unusable until this process restarts */
  STI_INTERNAL = 8           /* a bug */
} sti_code;

typedef enum sti_dtype {
  STI_BOOL = 0,
  STI_U8 = 1,
  STI_I8 = 2,
  STI_U16 = 3,
  STI_I16 = 4,
  STI_U32 = 5,
  STI_I32 = 6,
  STI_U64 = 7,
  STI_I64 = 8,
  STI_F16 = 9,
  STI_BF16 = 10,
  STI_F32 = 11,
  STI_F64 = 12
} sti_dtype;

#define STI_RANK_MAX 8
#define STI_ERROR_MESSAGE_BYTES 512

/* Filled on failure by the function that takes it. The caller owns it; message ends with NUL. */
typedef struct sti_error {
  int32_t code;                          /* a positive sti_code; 0 when the call succeeded */
  int32_t os_code;                       /* errno, or 0 */
  char message[STI_ERROR_MESSAGE_BYTES]; /* what was being done, to what, and what to do next */
} sti_error;

typedef struct sti_state sti_state; /* one attached state; opaque */

typedef struct sti_attach_options {
  uint32_t struct_bytes; /* sizeof(sti_attach_options): newer fields are absent in older callers */
  uint32_t wait_ms;      /* how long to wait while the state is being built; 0: do not wait */
  uint32_t connect_ms;   /* deadline for connecting and for each reply; 0 means 5000 */
  uint32_t reserved;     /* 0 */
  /* NULL: $STICKYINVOC_SOCKET, else $XDG_RUNTIME_DIR/stickyinvoc/stickyd.sock, else
   * /run/stickyinvoc/stickyd.sock */
  const char* socket_path;
  const uint8_t* digest; /* 16 bytes, or NULL: only a state with this content will do */
} sti_attach_options;

typedef struct sti_tensor {
  const void* data;            /* read-only host memory, aligned to 256; valid until sti_detach */
  const char* name;            /* NUL-terminated; valid until sti_detach */
  uint64_t size_bytes;         /* product of shape[0..rank) times the element size */
  int32_t dtype;               /* an sti_dtype */
  int32_t rank;                /* dimensions in use, 0 to STI_RANK_MAX */
  int64_t shape[STI_RANK_MAX]; /* elements, outermost first; entries past rank are 1 */
} sti_tensor;

typedef struct sti_state_info {
  uint32_t struct_bytes; /* set by the caller to sizeof(sti_state_info) */
  uint32_t tensor_count;
  uint32_t asset_count;
  uint32_t adopted;           /* 1: the lease came with the process (stickyctl run), 0: attached */
  uint64_t epoch;             /* which load of its daemon it is; a later load has a higher one */
  uint64_t daemon_nonce;      /* which life of the daemon built it */
  uint64_t arena_bytes;       /* shared memory mapped */
  uint64_t lease_id;          /* as `stickyctl leases` shows it; 0 when adopted */
  uint8_t content_digest[16]; /* xxh3-128 of the state's bytes */
  uint8_t template_digest[16];
  const char* name;   /* valid until sti_detach */
  const char* device; /* "host"; valid until sti_detach */
  /* 1: the daemon knows of the lease. 0: the connection is gone, since the daemon was restarted or
   * has died; what is mapped stays valid and the same. Attach anew for a lease that the next daemon
   * knows of: nothing here does it behind the caller's back. */
  uint32_t connected;
  uint32_t reserved; /* 0 */
} sti_state_info;

/* "0.1.0"; static. */
STI_EXPORT const char* sti_version(void);

/* "not found", ...; static; never NULL. `code` may be negative, as functions return it. */
STI_EXPORT const char* sti_code_name(int code);

/* "bf16", ...; static; NULL for an unknown dtype. */
STI_EXPORT const char* sti_dtype_name(int dtype);

/* Attaches the state called `name` on this node's daemon. One round trip when it is ready.
 *   name: NULL means $STICKYINVOC_STATE. options: NULL for the defaults. error: may be NULL.
 *   out: set on success only; the caller ends it with sti_detach.
 * Under `stickyctl run` the lease that came with the process is used, without a round trip, when
 * `name` is the state it is for and no socket_path is given.
 * Blocking: at most connect_ms, and wait_ms while the state is being built.
 * Errors: STI_INVALID_ARGUMENT, STI_NOT_FOUND, STI_UNAVAILABLE (no daemon, or not ready in time),
 *   STI_PERMISSION_DENIED, STI_OUT_OF_MEMORY, STI_CORRUPT (another digest: the message has both).
 */
STI_EXPORT int sti_attach(const char* name, const sti_attach_options* options, sti_state** out,
                          sti_error* error);

/* Unmaps and ends the lease. NULL is allowed. Pointers into the state are invalid afterwards. */
STI_EXPORT void sti_detach(sti_state* state);

/* Errors: STI_INVALID_ARGUMENT for a struct_bytes that no version had, or after fork. */
STI_EXPORT int sti_state_info_get(const sti_state* state, sti_state_info* info, sti_error* error);

/* Looks a tensor up by name. Cost: logarithmic in the number of tensors; no daemon involved.
 * Errors: STI_NOT_FOUND, with the name. */
STI_EXPORT int sti_tensor_find(const sti_state* state, const char* name, sti_tensor* out,
                               sti_error* error);

/* The tensor at `index`, 0 <= index < tensor_count, in order of name. */
STI_EXPORT int sti_tensor_at(const sti_state* state, uint32_t index, sti_tensor* out,
                             sti_error* error);

/* The bytes of an asset (config.json, ...), read in place; valid until sti_detach.
 * Errors: STI_NOT_FOUND, with the name. */
STI_EXPORT int sti_asset_find(const sti_state* state, const char* name, const void** data,
                              uint64_t* size_bytes, sti_error* error);

/* The name of the asset at `index`, 0 <= index < asset_count; NULL past the end. */
STI_EXPORT const char* sti_asset_name_at(const sti_state* state, uint32_t index);

#ifdef __cplusplus
}
#endif

#endif /* STICKYINVOC_STICKYINVOC_H_ */
