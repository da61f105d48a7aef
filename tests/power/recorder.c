/* Records what a process does to the files of one folder: a library for LD_PRELOAD.
 *
 * TASKMILL_POWER_ROOT   the folder, an absolute path without links
 * TASKMILL_POWER_LOG    the recording; every process appends to the same file
 * TASKMILL_POWER_DELAY  longest delay of a sync in microseconds, so that other threads write meanwhile
 * TASKMILL_POWER_FAIL   "SUFFIX:N": the Nth sync of a file whose name ends with SUFFIX fails in this process
 *
 * A change and its record are made under one lock, which all threads and processes share, so the order of the records
 * is the order of the changes. A sync takes the lock twice: it covers what was written before it began, and it counts
 * from when it has returned. The real sync is made without the lock.
 *
 * A failed sync behaves as on Linux: the pages are marked clean, and every other descriptor that was open on the file
 * reports the error once as well.
 *
 * Only the folder itself is recorded, not folders below it. Changes that this library cannot record are reported as
 * UNSUPPORTED, so that a recording is complete or refused. The file -shm is left out: SQLite rebuilds it.
 */

#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE = 1, WRITE, SIZE, UNLINK, RENAME, LINK, SYNC_BEGINS, SYNC_ENDS, NOTE, UNSUPPORTED };
enum outcome { SYNCED, LOST, REPORTED_LATE };

struct head {
    uint32_t kind, process;
    uint64_t file; /* inode; 0 for the folder */
    int64_t first, second;
    uint64_t length;
};

#define DESCRIPTORS 4096

static char root[PATH_MAX];
static size_t root_length;
static int recording = -1;
static unsigned longest_delay;
static char failing_suffix[64];
static long failing_number;
static ino_t failed_file;
static char has_seen_failure[DESCRIPTORS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(result, name, ...) \
    static result (*real_##name)(__VA_ARGS__); \
    static void find_##name(void) { *(void **)&real_##name = dlsym(RTLD_NEXT, #name); }
#define FOUND(name) (real_##name ? (void)0 : find_##name())

REAL(int, open64, const char *, int, ...)
REAL(int, openat64, int, const char *, int, ...)
REAL(ssize_t, write, int, const void *, size_t)
REAL(ssize_t, writev, int, const struct iovec *, int)
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)
REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t)
REAL(int, ftruncate64, int, off64_t)
REAL(int, truncate64, const char *, off64_t)
REAL(int, fallocate64, int, int, off64_t, off64_t)
REAL(int, posix_fallocate64, int, off64_t, off64_t)
REAL(int, unlinkat, int, const char *, int)
REAL(int, renameat2, int, const char *, int, const char *, unsigned)
REAL(int, linkat, int, const char *, int, const char *, int)
REAL(int, mkdirat, int, const char *, mode_t)
REAL(int, symlinkat, const char *, int, const char *)
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(void *, mmap64, void *, size_t, int, int, int, off64_t)
REAL(ssize_t, sendfile64, int, int, off64_t *, size_t)
REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned)

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("TASKMILL_POWER_ROOT"), *log = getenv("TASKMILL_POWER_LOG");
    const char *delay = getenv("TASKMILL_POWER_DELAY"), *fail = getenv("TASKMILL_POWER_FAIL");
    FOUND(open64);
    FOUND(write);
    if (!folder || !log)
        return;
    root_length = strlen(folder);
    memcpy(root, folder, root_length + 1);
    longest_delay = delay ? (unsigned)atol(delay) : 0;
    if (fail && strchr(fail, ':')) {
        snprintf(failing_suffix, sizeof failing_suffix, "%.*s", (int)(strchr(fail, ':') - fail), fail);
        failing_number = atol(strchr(fail, ':') + 1);
    }
    recording = real_open64(log, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    if (recording < 0)
        abort();
    /* Away from the numbers that programs hand around. */
    int moved = fcntl(recording, F_DUPFD_CLOEXEC, 900);
    if (moved >= 0) {
        close(recording);
        recording = moved;
    }
}

static void take(void) {
    pthread_mutex_lock(&lock);
    while (flock(recording, LOCK_EX) != 0)
        if (errno != EINTR)
            abort();
}

static void release(void) {
    flock(recording, LOCK_UN);
    pthread_mutex_unlock(&lock);
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* The name inside the folder, or NULL if the path leads elsewhere; "" is the folder itself. */
static const char *name_of(const char *path) {
    if (recording < 0 || strncmp(path, root, root_length) != 0)
        return NULL;
    if (path[root_length] == 0)
        return "";
    if (path[root_length] != '/' || ends_with(path, "-shm") || ends_with(path, "-shm (deleted)"))
        return NULL;
    return path + root_length + 1;
}

static const char *name_of_descriptor(int descriptor, char *buffer) {
    char link[64];
    if (recording < 0)
        return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    if (length < 0)
        return NULL;
    buffer[length] = 0;
    return name_of(buffer);
}

static const char *name_at(int folder, const char *path, char *buffer) {
    if (recording < 0)
        return NULL;
    if (path[0] == '/')
        return name_of(path);
    char link[64];
    if (folder == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    if (length < 0 || length + strlen(path) + 2 > PATH_MAX)
        return NULL;
    snprintf(buffer + length, PATH_MAX - length, "/%s", path);
    return name_of(buffer);
}

/* Append a record; the caller has the lock. Returns its place in the recording. */
static int64_t record(enum kind kind, ino_t file, int64_t first, int64_t second, const struct iovec *data, int parts) {
    int kept = errno;
    struct head head = {kind, (uint32_t)getpid(), file, first, second, 0};
    struct iovec all[16] = {{&head, sizeof head}};
    for (int part = 0; part < parts; part++) {
        all[part + 1] = data[part];
        head.length += data[part].iov_len;
    }
    int64_t place = lseek(recording, 0, SEEK_END);
    FOUND(writev);
    if (real_writev(recording, all, parts + 1) != (ssize_t)(sizeof head + head.length))
        abort();
    errno = kept;
    return place;
}

static int64_t record_text(enum kind kind, ino_t file, int64_t first, const char *one, const char *two) {
    struct iovec data[3] = {{(void *)one, strlen(one)}, {(void *)"", 1}, {(void *)(two ? two : ""), two ? strlen(two) : 0}};
    return record(kind, file, first, 0, data, two ? 3 : 1);
}

static void refuse(const char *deed) {
    take();
    record_text(UNSUPPORTED, 0, 0, deed, NULL);
    release();
}

static ino_t file_of(int descriptor) {
    struct stat found;
    return fstat(descriptor, &found) == 0 ? found.st_ino : 0;
}

/* For the workload: put words into the recording, in order with everything else. */
void taskmill_power_note(const char *words, size_t length) {
    if (recording < 0)
        return;
    struct iovec data = {(void *)words, length};
    take();
    record(NOTE, 0, 0, 0, &data, 1);
    release();
}

/* Opening */

static int opening(int folder, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    const char *name = name_at(folder, path, buffer);
    FOUND(openat64);
    if (name != NULL && (flags & O_TMPFILE) == O_TMPFILE) {
        /* A file without a name: recorded with the one that the system shows, until it is linked. */
        take();
        int unnamed = real_openat64(folder, path, flags, mode);
        if (unnamed >= 0)
            record_text(CREATE, file_of(unnamed), 0, name_of_descriptor(unnamed, buffer), NULL);
        release();
        return unnamed;
    }
    if (name == NULL || *name == 0)
        return real_openat64(folder, path, flags, mode);
    take();
    struct stat before;
    int was_there = fstatat(folder, path, &before, 0) == 0;
    int descriptor = real_openat64(folder, path, flags, mode);
    if (descriptor >= 0) {
        if (!was_there)
            record_text(CREATE, file_of(descriptor), 0, name, NULL);
        else if ((flags & O_TRUNC) && before.st_size > 0)
            record(SIZE, before.st_ino, 0, 0, NULL, 0);
        if (descriptor < DESCRIPTORS)
            has_seen_failure[descriptor] = failed_file != 0;
    }
    release();
    return descriptor;
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, last); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) { MODE(flags, flags) return opening(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return opening(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags, flags) return opening(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags, flags) return opening(folder, path, flags, mode); }
int creat(const char *path, mode_t mode) { return opening(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }
int __open_2(const char *path, int flags) { return opening(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opening(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return opening(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return opening(folder, path, flags, 0); }

/* Writing */

static ssize_t writing(int descriptor, const struct iovec *data, int parts, off64_t offset) {
    ssize_t written;
    if (offset < 0) {
        FOUND(writev);
        written = real_writev(descriptor, data, parts);
        offset = written > 0 ? lseek(descriptor, 0, SEEK_CUR) - written : 0;
    } else {
        FOUND(pwritev64);
        written = real_pwritev64(descriptor, data, parts, offset);
    }
    ino_t file = file_of(descriptor);
    ssize_t left = written;
    for (int part = 0; part < parts && left > 0; part++) {
        struct iovec one = data[part];
        if ((ssize_t)one.iov_len > left)
            one.iov_len = left;
        record(WRITE, file, offset, 0, &one, 1);
        offset += one.iov_len;
        left -= one.iov_len;
    }
    return written;
}

#define LOCKED(result, call) \
    take(); \
    result answer = call; \
    int kept = errno; \
    release(); \
    errno = kept; \
    return answer;

ssize_t write(int descriptor, const void *data, size_t length) {
    char buffer[PATH_MAX];
    FOUND(write);
    if (!name_of_descriptor(descriptor, buffer))
        return real_write(descriptor, data, length);
    struct iovec one = {(void *)data, length};
    LOCKED(ssize_t, writing(descriptor, &one, 1, -1))
}

ssize_t writev(int descriptor, const struct iovec *data, int parts) {
    char buffer[PATH_MAX];
    FOUND(writev);
    if (!name_of_descriptor(descriptor, buffer))
        return real_writev(descriptor, data, parts);
    LOCKED(ssize_t, writing(descriptor, data, parts, -1))
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t offset) {
    char buffer[PATH_MAX];
    FOUND(pwrite64);
    if (!name_of_descriptor(descriptor, buffer))
        return real_pwrite64(descriptor, data, length, offset);
    struct iovec one = {(void *)data, length};
    LOCKED(ssize_t, writing(descriptor, &one, 1, offset))
}

ssize_t pwritev64(int descriptor, const struct iovec *data, int parts, off64_t offset) {
    char buffer[PATH_MAX];
    FOUND(pwritev64);
    if (!name_of_descriptor(descriptor, buffer))
        return real_pwritev64(descriptor, data, parts, offset);
    LOCKED(ssize_t, writing(descriptor, data, parts, offset))
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
    return pwrite64(descriptor, data, length, offset);
}
ssize_t pwritev(int descriptor, const struct iovec *data, int parts, off_t offset) {
    return pwritev64(descriptor, data, parts, offset);
}

/* Sizes */

static int resizing(int descriptor, off64_t size) {
    FOUND(ftruncate64);
    int answer = real_ftruncate64(descriptor, size);
    if (answer == 0)
        record(SIZE, file_of(descriptor), size, 0, NULL, 0);
    return answer;
}

int ftruncate64(int descriptor, off64_t size) {
    char buffer[PATH_MAX];
    FOUND(ftruncate64);
    if (!name_of_descriptor(descriptor, buffer))
        return real_ftruncate64(descriptor, size);
    LOCKED(int, resizing(descriptor, size))
}
int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }

int truncate64(const char *path, off64_t size) {
    char buffer[PATH_MAX];
    FOUND(truncate64);
    if (!name_at(AT_FDCWD, path, buffer))
        return real_truncate64(path, size);
    int descriptor = open64(path, O_WRONLY);
    if (descriptor < 0)
        return -1;
    int answer = ftruncate64(descriptor, size);
    close(descriptor);
    return answer;
}
int truncate(const char *path, off_t size) { return truncate64(path, size); }

/* What is there after a file was given room: it may only have grown. */
static void grown(int descriptor, off64_t end) {
    struct stat found;
    if (fstat(descriptor, &found) == 0 && found.st_size == end)
        record(SIZE, found.st_ino, end, 0, NULL, 0);
}

static int allocating(int descriptor, int mode, off64_t offset, off64_t length) {
    FOUND(fallocate64);
    int answer = real_fallocate64(descriptor, mode, offset, length);
    if (answer == 0)
        grown(descriptor, offset + length);
    return answer;
}

int fallocate64(int descriptor, int mode, off64_t offset, off64_t length) {
    char buffer[PATH_MAX];
    FOUND(fallocate64);
    if (!name_of_descriptor(descriptor, buffer))
        return real_fallocate64(descriptor, mode, offset, length);
    if (mode & ~FALLOC_FL_KEEP_SIZE)
        refuse("fallocate that changes content");
    LOCKED(int, allocating(descriptor, mode, offset, length))
}
int fallocate(int descriptor, int mode, off_t offset, off_t length) { return fallocate64(descriptor, mode, offset, length); }

static int reserving(int descriptor, off64_t offset, off64_t length) {
    FOUND(posix_fallocate64);
    int answer = real_posix_fallocate64(descriptor, offset, length);
    if (answer == 0)
        grown(descriptor, offset + length);
    return answer;
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t length) {
    char buffer[PATH_MAX];
    FOUND(posix_fallocate64);
    if (!name_of_descriptor(descriptor, buffer))
        return real_posix_fallocate64(descriptor, offset, length);
    LOCKED(int, reserving(descriptor, offset, length))
}
int posix_fallocate(int descriptor, off_t offset, off_t length) { return posix_fallocate64(descriptor, offset, length); }

/* Names */

static int unlinking(int folder, const char *path, int flags, const char *name) {
    FOUND(unlinkat);
    int answer = real_unlinkat(folder, path, flags);
    if (answer == 0)
        record_text(UNLINK, 0, 0, name, NULL);
    return answer;
}

int unlinkat(int folder, const char *path, int flags) {
    char buffer[PATH_MAX];
    const char *name = name_at(folder, path, buffer);
    FOUND(unlinkat);
    if (!name || (flags & AT_REMOVEDIR))
        return real_unlinkat(folder, path, flags);
    LOCKED(int, unlinking(folder, path, flags, name))
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

static int renaming(int folder, const char *path, int folder2, const char *path2, unsigned flags, const char *from, const char *to) {
    int answer = real_renameat2(folder, path, folder2, path2, flags);
    if (answer == 0)
        record_text(RENAME, 0, 0, from, to);
    return answer;
}

int renameat2(int folder, const char *path, int folder2, const char *path2, unsigned flags) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *from = name_at(folder, path, one), *to = name_at(folder2, path2, two);
    FOUND(renameat2);
    if (!from && !to)
        return real_renameat2(folder, path, folder2, path2, flags);
    if (!from || !to || (flags & RENAME_EXCHANGE))
        refuse("rename into or out of the folder");
    LOCKED(int, renaming(folder, path, folder2, path2, flags, from, to))
}
int renameat(int folder, const char *path, int folder2, const char *path2) { return renameat2(folder, path, folder2, path2, 0); }
int rename(const char *path, const char *path2) { return renameat2(AT_FDCWD, path, AT_FDCWD, path2, 0); }

static int linking(int folder, const char *path, int folder2, const char *path2, int flags, const char *from, const char *to) {
    int answer = real_linkat(folder, path, folder2, path2, flags);
    if (answer == 0)
        record_text(ends_with(from, " (deleted)") ? RENAME : LINK, 0, 0, from, to);
    return answer;
}

int linkat(int folder, const char *path, int folder2, const char *path2, int flags) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *to = name_at(folder2, path2, two), *from;
    int descriptor;
    if ((flags & AT_SYMLINK_FOLLOW) && sscanf(path, "/proc/self/fd/%d", &descriptor) == 1)
        from = name_of_descriptor(descriptor, one);
    else
        from = name_at(folder, path, one);
    FOUND(linkat);
    if (!from && !to)
        return real_linkat(folder, path, folder2, path2, flags);
    if (!from || !to)
        refuse("link into or out of the folder");
    LOCKED(int, linking(folder, path, folder2, path2, flags, from ? from : "", to ? to : ""))
}
int link(const char *path, const char *path2) { return linkat(AT_FDCWD, path, AT_FDCWD, path2, 0); }

int mkdirat(int folder, const char *path, mode_t mode) {
    char buffer[PATH_MAX];
    FOUND(mkdirat);
    if (name_at(folder, path, buffer))
        refuse("mkdir");
    return real_mkdirat(folder, path, mode);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int symlinkat(const char *to, int folder, const char *path) {
    char buffer[PATH_MAX];
    FOUND(symlinkat);
    if (name_at(folder, path, buffer))
        refuse("symlink");
    return real_symlinkat(to, folder, path);
}
int symlink(const char *to, const char *path) { return symlinkat(to, AT_FDCWD, path); }

/* Syncing */

/* Whether this descriptor has yet to report that another one's sync has failed; the caller has the lock. */
static int reports_late(int descriptor, ino_t file) {
    if (!failed_file || file != failed_file || descriptor >= DESCRIPTORS || has_seen_failure[descriptor])
        return 0;
    has_seen_failure[descriptor] = 1;
    return 1;
}

static int syncing(int descriptor, int (*really)(int)) {
    char buffer[PATH_MAX];
    const char *name = name_of_descriptor(descriptor, buffer);
    if (!name)
        return really(descriptor);
    take();
    ino_t file = *name ? file_of(descriptor) : 0;
    enum outcome outcome = SYNCED;
    if (*name && failing_number > 0 && ends_with(name, failing_suffix) && --failing_number == 0) {
        outcome = LOST;
        failed_file = file;
        if (descriptor < DESCRIPTORS)
            has_seen_failure[descriptor] = 1;
    }
    int64_t begun = record_text(SYNC_BEGINS, file, 0, name, NULL);
    unsigned delay = longest_delay ? (unsigned)((begun * 2654435761u) >> 8) % longest_delay : 0;
    release();
    if (delay)
        usleep(delay);
    int answer = really(descriptor);
    int kept = errno;
    if (answer != 0 && outcome == SYNCED)
        outcome = LOST;
    take();
    /* Errors are reported at the end of a sync, so one that was under way meanwhile reports it as well. */
    if (outcome == SYNCED && reports_late(descriptor, file))
        outcome = REPORTED_LATE;
    record(SYNC_ENDS, file, begun, outcome, NULL, 0);
    release();
    errno = answer != 0 ? kept : EIO;
    return outcome == SYNCED ? 0 : -1;
}

int fsync(int descriptor) {
    FOUND(fsync);
    return syncing(descriptor, real_fsync);
}

int fdatasync(int descriptor) {
    FOUND(fdatasync);
    return syncing(descriptor, real_fdatasync);
}

/* Ways around all of this */

void *mmap64(void *address, size_t length, int protection, int flags, int descriptor, off64_t offset) {
    char buffer[PATH_MAX];
    FOUND(mmap64);
    if (descriptor >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE) && name_of_descriptor(descriptor, buffer))
        refuse("mmap for writing");
    return real_mmap64(address, length, protection, flags, descriptor, offset);
}
void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    return mmap64(address, length, protection, flags, descriptor, offset);
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t length) {
    char buffer[PATH_MAX];
    FOUND(sendfile64);
    if (name_of_descriptor(to, buffer))
        refuse("sendfile");
    return real_sendfile64(to, from, offset, length);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t length) { return sendfile64(to, from, offset, length); }

ssize_t copy_file_range(int from, off64_t *offset, int to, off64_t *offset2, size_t length, unsigned flags) {
    char buffer[PATH_MAX];
    FOUND(copy_file_range);
    if (name_of_descriptor(to, buffer))
        refuse("copy_file_range");
    return real_copy_file_range(from, offset, to, offset2, length, flags);
}
