// Logs every change of files below POWER_ROOT to POWER_LOG: preloaded, see record.py for its use.
//
// A record is the struct below, a path and data. Files are named by their inode numbers, paths
// are relative to the root. One lock, over threads and processes, is held around a change and its
// record, so the log has the changes in the order in which they were made. A sync of a path that
// matches POWER_SKIP (fnmatch, several divided by '|') is left out: a mutant.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct record { char kind; char pad[3]; unsigned pid; unsigned long inode, offset; unsigned path_bytes, data_bytes; };
typedef char path_t[PATH_MAX];

static char root[PATH_MAX];
static size_t root_bytes;
static dev_t device;
static int log_fd = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static void open_log(void) {
    // its own description in each process: a lock belongs to that
    log_fd = syscall(SYS_openat, AT_FDCWD, getenv("POWER_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}
static void in_child(void) {
    pthread_mutex_init(&mutex, NULL);
    if (log_fd >= 0) { syscall(SYS_close, log_fd); open_log(); }
}
static void lock(void) { pthread_mutex_lock(&mutex); while (flock(log_fd, LOCK_EX) && errno == EINTR); }
static void unlock(void) { int kept = errno; flock(log_fd, LOCK_UN); pthread_mutex_unlock(&mutex); errno = kept; }

static void put(char kind, unsigned long inode, unsigned long offset, const char *path, const struct iovec *data, int parts, size_t bytes) {
    int kept = errno;
    struct record head = {kind, {0}, (unsigned)getpid(), inode, offset, path ? strlen(path) : 0, bytes};
    struct iovec all[2 + 1024] = {{&head, sizeof head}, {(void *)path, head.path_bytes}};
    int count = 2;
    for (; parts > 0 && bytes > 0; data++, parts--) { // a short write took less than was offered
        all[count] = *data;
        if (all[count].iov_len > bytes) all[count].iov_len = bytes;
        bytes -= all[count++].iov_len;
    }
    size_t wanted = sizeof head + head.path_bytes + head.data_bytes;
    if ((size_t)syscall(SYS_writev, log_fd, all, count) != wanted) { dprintf(2, "power: the log cannot be written\n"); abort(); }
    errno = kept;
}
static void put_text(char kind, unsigned long inode, const char *path, const char *text) {
    struct iovec data = {(void *)text, strlen(text)};
    put(kind, inode, 0, path, &data, 1, data.iov_len);
}

__attribute__((constructor)) static void begin(void) {
    struct stat found;
    const char *named = getenv("POWER_ROOT");
    if (!named || !getenv("POWER_LOG") || !realpath(named, root) || stat(root, &found)) { root[0] = 0; return; }
    root_bytes = strlen(root);
    device = found.st_dev;
    open_log();
    pthread_atfork(NULL, NULL, in_child);
    lock(); put('R', found.st_ino, 0, "", NULL, 0, 0); unlock();
}

// the part of a path below the root, or NULL
static const char *below(const char *path) {
    if (strncmp(path, root, root_bytes)) return NULL;
    if (!path[root_bytes]) return path + root_bytes;
    return path[root_bytes] == '/' ? path + root_bytes + 1 : NULL;
}
// its inode and its path where a descriptor is a file or folder below the root
static const char *named(int fd, path_t path, struct stat *found) {
    char link[32];
    if (log_fd < 0 || fstat(fd, found) || found->st_dev != device || !(S_ISREG(found->st_mode) || S_ISDIR(found->st_mode))) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, PATH_MAX - 1);
    if (bytes < 0) return NULL;
    path[bytes] = 0;
    return below(path);
}
// a path without links in its folders, relative to the root, or NULL
static const char *resolved(int at, const char *path, path_t out) {
    int kept = errno;
    const char *slash = strrchr(path, '/'), *result = NULL;
    path_t folder, link;
    if (log_fd < 0 || strlen(path) >= PATH_MAX) return NULL;
    snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = syscall(SYS_openat, at, folder, O_PATH | O_CLOEXEC | O_DIRECTORY, 0);
    if (fd >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(link, folder, PATH_MAX - 1);
        if (bytes > 0) {
            folder[bytes] = 0;
            if (snprintf(out, PATH_MAX, "%s/%s", folder, slash ? slash + 1 : path) < PATH_MAX) result = below(out);
        }
        syscall(SYS_close, fd);
    }
    errno = kept;
    return result;
}
static unsigned long inode_of(int at, const char *path) {
    struct stat found;
    return fstatat(at, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : found.st_ino;
}

static int opened(int at, const char *path, int flags, mode_t mode) {
    path_t buffer;
    const char *name = flags & (O_CREAT | O_TRUNC) ? resolved(at, path, buffer) : NULL;
    if (!name) return syscall(SYS_openat, at, path, flags, mode);
    lock();
    int was_there = faccessat(at, path, F_OK, 0) == 0;
    int fd = syscall(SYS_openat, at, path, flags, mode);
    struct stat found;
    if (fd >= 0 && !fstat(fd, &found)) {
        if (!was_there) put('C', found.st_ino, 0, name, NULL, 0, 0);
        else if (flags & O_TRUNC && S_ISREG(found.st_mode)) put('T', found.st_ino, 0, NULL, NULL, 0, 0);
    }
    unlock();
    return fd;
}
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return opened(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

// stdio writes past us: the file's name is known, its contents are not ('O': RocksDB's LOG for people)
static FILE *file_opened(FILE *file, int was_there, const char *name) {
    struct stat found;
    if (file && !fstat(fileno(file), &found)) {
        if (!was_there) put('C', found.st_ino, 0, name, NULL, 0, 0);
        put('O', found.st_ino, 0, NULL, NULL, 0, 0);
    }
    return file;
}
#define FOPEN(name) FILE *name(const char *path, const char *mode) { \
    path_t buffer; REAL(name); \
    const char *below_root = strpbrk(mode, "wa+") ? resolved(AT_FDCWD, path, buffer) : NULL; \
    if (!below_root) return real(path, mode); \
    lock(); \
    int was_there = access(path, F_OK) == 0; \
    FILE *file = file_opened(real(path, mode), was_there, below_root); \
    unlock(); \
    return file; }
FOPEN(fopen)
FOPEN(fopen64)

static ssize_t written(int fd, const struct iovec *data, int parts, off_t at, int is_at) {
    path_t path; struct stat found;
    int call = is_at ? SYS_pwritev : SYS_writev;
    if (!named(fd, path, &found) || !S_ISREG(found.st_mode)) return syscall(call, fd, data, parts, at, 0);
    lock();
    ssize_t bytes = syscall(call, fd, data, parts, at, 0);
    if (bytes > 0) put('W', found.st_ino, is_at ? at : lseek(fd, 0, SEEK_CUR) - bytes, NULL, data, parts, bytes);
    unlock();
    return bytes;
}
#define ONE struct iovec one = {(void *)data, bytes}
ssize_t write(int fd, const void *data, size_t bytes) { ONE; return written(fd, &one, 1, 0, 0); }
ssize_t writev(int fd, const struct iovec *data, int parts) { return written(fd, data, parts, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) { ONE; return written(fd, &one, 1, at, 1); }
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at) { ONE; return written(fd, &one, 1, at, 1); }
ssize_t pwritev(int fd, const struct iovec *data, int parts, off_t at) { return written(fd, data, parts, at, 1); }
ssize_t pwritev64(int fd, const struct iovec *data, int parts, off_t at) { return written(fd, data, parts, at, 1); }
// the kernel copies from file to file: callers go on with read and write where it cannot
static int is_ours(int fd) { path_t path; struct stat found; return named(fd, path, &found) != NULL; }
ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t bytes, unsigned flags) {
    if (is_ours(out)) { errno = ENOSYS; return -1; }
    return syscall(SYS_copy_file_range, in, in_at, out, out_at, bytes, flags);
}
ssize_t sendfile(int out, int in, off_t *from, size_t bytes) {
    if (is_ours(out)) { errno = ENOTSOCK; return -1; }
    return syscall(SYS_sendfile, out, in, from, bytes);
}
ssize_t sendfile64(int out, int in, off_t *from, size_t bytes) { return sendfile(out, in, from, bytes); }
static int is_skipped(const char *path) {
    const char *patterns = getenv("POWER_SKIP");
    char copy[4096], *rest = copy, *pattern;
    if (!patterns) return 0;
    snprintf(copy, sizeof copy, "%s", patterns);
    while ((pattern = strsep(&rest, "|"))) if (!fnmatch(pattern, path, 0)) return 1;
    return 0;
}
static int synced(int fd, int call) {
    path_t path; struct stat found;
    const char *name = named(fd, path, &found);
    if (!name) return syscall(call, fd);
    if (is_skipped(name)) return 0;
    lock();
    int result = syscall(call, fd);
    if (!result) put('S', found.st_ino, 0, NULL, NULL, 0, 0);
    unlock();
    return result;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
// starts writing back, promises nothing
int sync_file_range(int fd, off_t from, off_t bytes, unsigned flags) { (void)fd; (void)from; (void)bytes; (void)flags; return 0; }

static int cut_to(int fd, off_t bytes) {
    path_t path; struct stat found;
    if (!named(fd, path, &found)) return syscall(SYS_ftruncate, fd, bytes);
    lock();
    int result = syscall(SYS_ftruncate, fd, bytes);
    if (!result) put('T', found.st_ino, bytes, NULL, NULL, 0, 0);
    unlock();
    return result;
}
int ftruncate(int fd, off_t bytes) { return cut_to(fd, bytes); }
int ftruncate64(int fd, off_t bytes) { return cut_to(fd, bytes); }
int truncate(const char *path, off_t bytes) {
    int fd = opened(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0), result = fd < 0 ? -1 : cut_to(fd, bytes);
    if (fd >= 0) syscall(SYS_close, fd);
    return result;
}
int truncate64(const char *path, off_t bytes) { return truncate(path, bytes); }
static int reserved(int fd, int mode, off_t from, off_t bytes) {
    path_t path; struct stat found, after;
    if (!named(fd, path, &found)) return syscall(SYS_fallocate, fd, mode, from, bytes);
    lock();
    int result = syscall(SYS_fallocate, fd, mode, from, bytes);
    if (!result && !fstat(fd, &after) && after.st_size != found.st_size) put('T', found.st_ino, after.st_size, NULL, NULL, 0, 0);
    unlock();
    return result;
}
int fallocate(int fd, int mode, off_t from, off_t bytes) { return reserved(fd, mode, from, bytes); }
int fallocate64(int fd, int mode, off_t from, off_t bytes) { return reserved(fd, mode, from, bytes); }
int posix_fallocate(int fd, off_t from, off_t bytes) { return reserved(fd, 0, from, bytes) ? errno : 0; }
int posix_fallocate64(int fd, off_t from, off_t bytes) { return posix_fallocate(fd, from, bytes); }

// a name that changed: a record with its path, and a second path or nothing
#define CHANGED(kind, at, path, at_second, second, call) do { \
    path_t one, two; \
    const char *first = resolved(at, path, one), *other = second ? resolved(at_second, second, two) : ""; \
    if (!first && !other) return call; \
    lock(); \
    unsigned long inode = inode_of(at, path); \
    int result = call; \
    if (!result) put_text(kind, inode ? inode : inode_of(at, path), first ? first : "", other ? other : ""); \
    unlock(); \
    return result; } while (0)

static int renamed(int from_at, const char *from, int to_at, const char *to, unsigned flags) { CHANGED('N', from_at, from, to_at, to, syscall(SYS_renameat2, from_at, from, to_at, to, flags)); }
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_at, const char *from, int to_at, const char *to) { return renamed(from_at, from, to_at, to, 0); }
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) { return renamed(from_at, from, to_at, to, flags); }
int unlinkat(int at, const char *path, int flags) { CHANGED('U', at, path, 0, (const char *)NULL, syscall(SYS_unlinkat, at, path, flags)); }
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) { CHANGED('L', from_at, from, to_at, to, syscall(SYS_linkat, from_at, from, to_at, to, flags)); }
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int mkdirat(int at, const char *path, mode_t mode) { CHANGED('D', at, path, 0, (const char *)NULL, syscall(SYS_mkdirat, at, path, mode)); }
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int symlinkat(const char *target, int at, const char *path) {
    path_t buffer;
    const char *name = resolved(at, path, buffer);
    if (!name) return syscall(SYS_symlinkat, target, at, path);
    lock();
    int result = syscall(SYS_symlinkat, target, at, path);
    if (!result) put_text('Y', inode_of(at, path), name, target);
    unlock();
    return result;
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

static void *mapped(void *at, size_t bytes, int protection, int flags, int fd, off_t from) {
    path_t path; struct stat found;
    if (fd >= 0 && flags & MAP_SHARED && protection & PROT_WRITE && named(fd, path, &found)) {
        lock(); put('M', found.st_ino, 0, NULL, NULL, 0, 0); unlock();
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, from);
}
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t from) { return mapped(at, bytes, protection, flags, fd, from); }
void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t from) { return mapped(at, bytes, protection, flags, fd, from); }
