/* Tells ThreadSanitizer about contended Synchronization.Mutex locks; preloaded into the tests that run under it.
 *
 * An uncontended Mutex is locked and unlocked by inlined code, whose atomic operations ThreadSanitizer sees. The rest is in
 * libswiftSynchronization.so, which is built without ThreadSanitizer: a lock that was waited for goes unnoticed, and
 * accesses to the guarded data are reported as races.
 *
 * The three functions here wrap those of that library, and tell ThreadSanitizer that locking happens after the previous
 * unlocking. They use the address of the atomic operations, so races outside a mutex, or under two different ones, are still
 * reported.
 *
 * The names and signatures are part of Swift's ABI since 6.0: stdlib/public/Synchronization/Mutex/LinuxImpl.swift.
 * If a later version of Swift changes them, the false reports return.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCK "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"

/* Swift's calling convention passes self, the address of the mutex's 32 bits, in the context register. */
#define SWIFT __attribute__((swiftcall))
#define SELF __attribute__((swift_context)) void *self

/* Weak, because programs without ThreadSanitizer, such as `swift test` itself, do not have them. */
__attribute__((weak)) void __tsan_acquire(void *address);
__attribute__((weak)) void __tsan_release(void *address);

/* The library's own function of this name. */
static void *original(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (function == NULL) {
        fprintf(stderr, "swift_mutex.c: %s\n", dlerror());
        abort();
    }
    return function;
}

/* Looked up once; several threads that do it at the same time get the same address. */
#define ORIGINAL(name, type) \
    ({ \
        static type *function; \
        type *known = __atomic_load_n(&function, __ATOMIC_RELAXED); \
        if (known == NULL) { \
            known = (type *)original(name); \
            __atomic_store_n(&function, known, __ATOMIC_RELAXED); \
        } \
        known; \
    })

typedef SWIFT void lock_function(uint32_t thread, SELF);
typedef SWIFT bool try_lock_function(SELF);
typedef SWIFT void unlock_function(SELF);

lock_function lock __asm__(LOCK);
try_lock_function try_lock __asm__(TRY_LOCK);
unlock_function unlock __asm__(UNLOCK);

SWIFT void lock(uint32_t thread, SELF) {
    ORIGINAL(LOCK, lock_function)(thread, self);
    if (__tsan_acquire) __tsan_acquire(self);
}

SWIFT bool try_lock(SELF) {
    bool is_locked = ORIGINAL(TRY_LOCK, try_lock_function)(self);
    if (is_locked && __tsan_acquire) __tsan_acquire(self);
    return is_locked;
}

SWIFT void unlock(SELF) {
    if (__tsan_release) __tsan_release(self);
    ORIGINAL(UNLOCK, unlock_function)(self);
}
