/* A folder as an NFS client shows it: names and attributes may be SECONDS old.
 *
 *     late_names BACKING MOUNTPOINT SECONDS CLIENT      (stays in the foreground; SIGTERM or umount ends it)
 *
 * Each mount is one client, that is one node; two mounts of one backing folder are two nodes that share a server.
 * With 0 seconds nothing is trusted: the control. What each choice stands for (Linux's NFS client, mounted as usual):
 *
 * - A name that was found is trusted for SECONDS, and so is a name that was found absent. NFS trusts both as long as
 *   it trusts its attributes of the folder: 30 s at least (acdirmin). What another client renames, makes or removes
 *   shows late.
 * - A name that is trusted leads to the object and not to the path: the old folder goes on to be used under its old
 *   name after another client has renamed it, and what is made "in" it ends up in the renamed one (file handles).
 * - To open a folder and list it asks for the truth (close-to-open: OPEN of a folder fetches its attributes, a change
 *   there drops all its names; READDIRPLUS brings new ones with their attributes). So a name that was absent too long
 *   is there after os.listdir() of its folder. The folders above are reached by trusted names all the same.
 * - To open a file compares the name with the server (close-to-open): where it leads elsewhere by now, the answer is
 *   ESTALE and the kernel walks the path anew. Content and size of an opened file are the server's.
 * - stat() compares nothing. O_EXCL, O_CREAT, mkdir, rename and unlink are done by the server on what is there.
 * - What this client itself makes, writes, renames or removes it sees at once. NFS learns of other clients' changes to
 *   the same folder by the way; here it does not, so that nothing is shown early by chance.
 * - flock and fcntl locks are the server's: two mounts exclude each other.
 */

#define FUSE_USE_VERSION 312
#define _GNU_SOURCE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BUCKETS 4096
#define THREADS 64
#define LOCK_POLL_MICROSECONDS 10000

/* A name below a folder that the kernel was told, found or absent. */
struct name {
    struct name *next;
    char text[];
};

/* One object of the server that the kernel knows. */
struct node {
    struct node *next;
    ino_t ino;
    dev_t dev;
    int fd; /* O_PATH: stands for the object, whatever its name is by now */
    uint64_t references; /* the kernel's, and one of each node below it */
    struct node *parent; /* where it was seen last, and as what */
    char *name;
    struct name *told;
};

static struct node root;
static struct node *buckets[BUCKETS];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static double seconds;
static struct fuse_session *session;

static struct node *node_of(fuse_ino_t ino) {
    return ino == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)ino;
}

static fuse_ino_t ino_of(struct node *node) {
    return node == &root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)node;
}

static struct node **bucket_of(ino_t ino) {
    return &buckets[ino % BUCKETS];
}

static void release_node(struct node *node, uint64_t count) {
    while (node != &root) {
        node->references -= count;
        if (node->references > 0)
            return;
        struct node **link = bucket_of(node->ino), *parent = node->parent;
        while (*link != node)
            link = &(*link)->next;
        *link = node->next;
        while (node->told) {
            struct name *next = node->told->next;
            free(node->told);
            node->told = next;
        }
        close(node->fd);
        free(node->name);
        free(node);
        node = parent;
        count = 1;
    }
}

static void place(struct node *node, struct node *parent, const char *name) {
    struct node *before = node->parent;
    parent->references++;
    node->parent = parent;
    free(node->name);
    node->name = strdup(name);
    if (before)
        release_node(before, 1);
}

static void forget(struct node *node, uint64_t count) {
    pthread_mutex_lock(&table);
    release_node(node, count);
    pthread_mutex_unlock(&table);
}

static void remember_told(struct node *folder, const char *text) {
    for (struct name *name = folder->told; name; name = name->next)
        if (!strcmp(name->text, text))
            return;
    struct name *name = malloc(sizeof *name + strlen(text) + 1);
    strcpy(name->text, text);
    name->next = folder->told;
    folder->told = name;
}

/* Let the kernel ask again for every name of a folder that it was told. */
static void expire_names(struct node *folder) {
    pthread_mutex_lock(&table);
    struct name *told = folder->told;
    folder->told = NULL;
    pthread_mutex_unlock(&table);
    while (told) {
        struct name *next = told->next;
        size_t length = strlen(told->text);
#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 15)
        fuse_lowlevel_notify_expire_entry(session, ino_of(folder), told->text, length, FUSE_LL_EXPIRE_ONLY);
#else
        fuse_lowlevel_notify_expire_entry(session, ino_of(folder), told->text, length);
#endif
        free(told);
        told = next;
    }
}

/* Find a name on the server, tell the kernel's node for it and count that. 0 or an error number. */
static int look_up(struct node *folder, const char *text, struct fuse_entry_param *entry) {
    memset(entry, 0, sizeof *entry);
    entry->attr_timeout = entry->entry_timeout = seconds;
    pthread_mutex_lock(&table);
    remember_told(folder, text);
    pthread_mutex_unlock(&table);
    int fd = openat(folder->fd, text, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    if (fstat(fd, &entry->attr)) {
        int error = errno;
        close(fd);
        return error;
    }
    pthread_mutex_lock(&table);
    struct node *node = *bucket_of(entry->attr.st_ino);
    while (node && (node->ino != entry->attr.st_ino || node->dev != entry->attr.st_dev))
        node = node->next;
    if (node) {
        close(fd);
    } else {
        node = calloc(1, sizeof *node);
        node->fd = fd;
        node->ino = entry->attr.st_ino;
        node->dev = entry->attr.st_dev;
        node->next = *bucket_of(node->ino);
        *bucket_of(node->ino) = node;
    }
    node->references++;
    place(node, folder, text);
    pthread_mutex_unlock(&table);
    entry->ino = ino_of(node);
    return 0;
}

static int is_removed(struct node *node) {
    struct stat attributes;
    return fstat(node->fd, &attributes) || attributes.st_nlink == 0;
}

static void reply_looked_up(fuse_req_t request, struct node *folder, const char *text) {
    struct fuse_entry_param entry;
    int error = look_up(folder, text, &entry);
    if (error == ENOENT)
        error = is_removed(folder) ? ESTALE : 0; /* an entry without a node: absent, and that is trusted, too */
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_entry(request, &entry);
}

static void late_init(void *data, struct fuse_conn_info *connection) {
    (void)data;
    connection->want |= FUSE_CAP_READDIRPLUS;
    connection->want &= ~(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_WRITEBACK_CACHE);
    connection->max_background = THREADS;
}

static void late_lookup(fuse_req_t request, fuse_ino_t parent, const char *text) {
    reply_looked_up(request, node_of(parent), text);
}

static void late_forget(fuse_req_t request, fuse_ino_t ino, uint64_t count) {
    forget(node_of(ino), count);
    fuse_reply_none(request);
}

static void late_forget_multi(fuse_req_t request, size_t count, struct fuse_forget_data *forgets) {
    for (size_t i = 0; i < count; i++)
        forget(node_of(forgets[i].ino), forgets[i].nlookup);
    fuse_reply_none(request);
}

static void late_getattr(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *file) {
    (void)file;
    struct stat attributes;
    if (fstat(node_of(ino)->fd, &attributes))
        fuse_reply_err(request, errno);
    else if (S_ISDIR(attributes.st_mode) && attributes.st_nlink == 0)
        fuse_reply_err(request, ESTALE);
    else
        fuse_reply_attr(request, &attributes, seconds);
}

static int change(int fd, struct stat *wanted, int which) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (which & FUSE_SET_ATTR_MODE && chmod(path, wanted->st_mode))
        return errno;
    if (which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
        uid_t uid = which & FUSE_SET_ATTR_UID ? wanted->st_uid : (uid_t)-1;
        gid_t gid = which & FUSE_SET_ATTR_GID ? wanted->st_gid : (gid_t)-1;
        if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
            return errno;
    }
    if (which & FUSE_SET_ATTR_SIZE && truncate(path, wanted->st_size))
        return errno;
    if (which & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
        struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
        if (which & FUSE_SET_ATTR_ATIME)
            times[0] = which & FUSE_SET_ATTR_ATIME_NOW ? (struct timespec){0, UTIME_NOW} : wanted->st_atim;
        if (which & FUSE_SET_ATTR_MTIME)
            times[1] = which & FUSE_SET_ATTR_MTIME_NOW ? (struct timespec){0, UTIME_NOW} : wanted->st_mtim;
        if (utimensat(AT_FDCWD, path, times, 0))
            return errno;
    }
    return 0;
}

static void late_setattr(fuse_req_t request, fuse_ino_t ino, struct stat *wanted, int which,
                         struct fuse_file_info *file) {
    int error = change(node_of(ino)->fd, wanted, which);
    if (error)
        fuse_reply_err(request, error);
    else
        late_getattr(request, ino, file);
}

static void late_readlink(fuse_req_t request, fuse_ino_t ino) {
    char target[4097];
    ssize_t length = readlinkat(node_of(ino)->fd, "", target, sizeof target - 1);
    if (length < 0) {
        fuse_reply_err(request, errno);
    } else {
        target[length] = 0;
        fuse_reply_readlink(request, target);
    }
}

/* Give what was made as root to the one who asked for it; a folder with the setgid bit passes on its group. */
static void hand_over(fuse_req_t request, struct node *folder, const char *text) {
    const struct fuse_ctx *caller = fuse_req_ctx(request);
    struct stat attributes;
    if (fstat(folder->fd, &attributes))
        return;
    gid_t gid = attributes.st_mode & S_ISGID ? (gid_t)-1 : caller->gid;
    if ((caller->uid || caller->gid) && fchownat(folder->fd, text, caller->uid, gid, AT_SYMLINK_NOFOLLOW))
        perror(text);
}

static int gone(struct node *folder, int error) {
    return error == ENOENT && is_removed(folder) ? ESTALE : error;
}

static void late_mknod(fuse_req_t request, fuse_ino_t parent, const char *text, mode_t mode, dev_t device) {
    struct node *folder = node_of(parent);
    if (mknodat(folder->fd, text, mode, device)) {
        fuse_reply_err(request, gone(folder, errno));
    } else {
        hand_over(request, folder, text);
        reply_looked_up(request, folder, text);
    }
}

static void late_mkdir(fuse_req_t request, fuse_ino_t parent, const char *text, mode_t mode) {
    struct node *folder = node_of(parent);
    if (mkdirat(folder->fd, text, mode)) {
        fuse_reply_err(request, gone(folder, errno));
    } else {
        hand_over(request, folder, text);
        reply_looked_up(request, folder, text);
    }
}

static void late_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *text) {
    struct node *folder = node_of(parent);
    if (symlinkat(target, folder->fd, text)) {
        fuse_reply_err(request, gone(folder, errno));
    } else {
        hand_over(request, folder, text);
        reply_looked_up(request, folder, text);
    }
}

static void late_link(fuse_req_t request, fuse_ino_t ino, fuse_ino_t parent, const char *text) {
    struct node *folder = node_of(parent);
    if (linkat(node_of(ino)->fd, "", folder->fd, text, AT_EMPTY_PATH))
        fuse_reply_err(request, gone(folder, errno));
    else
        reply_looked_up(request, folder, text);
}

static void late_unlink(fuse_req_t request, fuse_ino_t parent, const char *text) {
    fuse_reply_err(request, unlinkat(node_of(parent)->fd, text, 0) ? errno : 0);
}

static void late_rmdir(fuse_req_t request, fuse_ino_t parent, const char *text) {
    fuse_reply_err(request, unlinkat(node_of(parent)->fd, text, AT_REMOVEDIR) ? errno : 0);
}

static void late_rename(fuse_req_t request, fuse_ino_t parent, const char *text, fuse_ino_t new_parent,
                        const char *new_text, unsigned int flags) {
    struct node *folder = node_of(parent), *target = node_of(new_parent);
    if (renameat2(folder->fd, text, target->fd, new_text, flags)) {
        fuse_reply_err(request, gone(folder, errno));
        return;
    }
    struct fuse_entry_param entry;
    if (!look_up(target, new_text, &entry)) /* its node has another place now */
        forget(node_of(entry.ino), 1);
    fuse_reply_err(request, 0);
}

/* Whether the name by which a file was reached leads elsewhere by now. */
static int is_stale(struct node *node) {
    struct stat attributes;
    pthread_mutex_lock(&table);
    int error = node->parent ? fstatat(node->parent->fd, node->name, &attributes, AT_SYMLINK_NOFOLLOW) : 0;
    int stale = node->parent && (error || attributes.st_ino != node->ino || attributes.st_dev != node->dev);
    pthread_mutex_unlock(&table);
    return stale;
}

static void late_open(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *file) {
    struct node *node = node_of(ino);
    char path[64];
    if (is_stale(node)) {
        fuse_reply_err(request, ESTALE);
        return;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", node->fd);
    int fd = open(path, (file->flags & ~O_NOFOLLOW) | O_CLOEXEC);
    if (fd < 0) {
        fuse_reply_err(request, errno);
        return;
    }
    /* The attributes that the kernel holds are from before; its pages it drops by itself. */
    fuse_lowlevel_notify_inval_inode(session, ino, -1, 0);
    file->fh = fd;
    /* The server knows where the end is. */
    file->direct_io = (file->flags & O_APPEND) != 0;
    if (fuse_reply_open(request, file))
        close(fd);
}

static void late_create(fuse_req_t request, fuse_ino_t parent, const char *text, mode_t mode,
                        struct fuse_file_info *file) {
    struct node *folder = node_of(parent);
    struct fuse_entry_param entry;
    struct stat attributes;
    int is_new = fstatat(folder->fd, text, &attributes, AT_SYMLINK_NOFOLLOW) != 0;
    int fd = openat(folder->fd, text, (file->flags | O_CREAT | O_CLOEXEC) & ~O_NOFOLLOW, mode);
    if (fd < 0) {
        fuse_reply_err(request, gone(folder, errno));
        return;
    }
    if (is_new)
        hand_over(request, folder, text);
    int error = look_up(folder, text, &entry);
    if (error) {
        close(fd);
        fuse_reply_err(request, error);
        return;
    }
    file->fh = fd;
    file->direct_io = (file->flags & O_APPEND) != 0;
    if (fuse_reply_create(request, &entry, file)) {
        close(fd);
        forget(node_of(entry.ino), 1);
    }
}

static void late_read(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *file) {
    (void)ino;
    struct fuse_bufvec content = FUSE_BUFVEC_INIT(size);
    content.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    content.buf[0].fd = file->fh;
    content.buf[0].pos = offset;
    fuse_reply_data(request, &content, FUSE_BUF_SPLICE_MOVE);
}

static void late_write(fuse_req_t request, fuse_ino_t ino, const char *content, size_t size, off_t offset,
                       struct fuse_file_info *file) {
    (void)ino;
    ssize_t written = pwrite(file->fh, content, size, offset);
    if (written < 0)
        fuse_reply_err(request, errno);
    else
        fuse_reply_write(request, written);
}

static void late_release(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *file) {
    (void)ino;
    close(file->fh);
    fuse_reply_err(request, 0);
}

static void late_fsync(fuse_req_t request, fuse_ino_t ino, int data_only, struct fuse_file_info *file) {
    (void)ino;
    fuse_reply_err(request, (data_only ? fdatasync(file->fh) : fsync(file->fh)) ? errno : 0);
}

static void late_fallocate(fuse_req_t request, fuse_ino_t ino, int mode, off_t offset, off_t length,
                           struct fuse_file_info *file) {
    (void)ino;
    fuse_reply_err(request, fallocate(file->fh, mode, offset, length) ? errno : 0);
}

static void late_opendir(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *file) {
    struct node *node = node_of(ino);
    int fd = is_removed(node) ? (errno = ESTALE, -1) : openat(node->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) {
        fuse_reply_err(request, errno);
        return;
    }
    expire_names(node);
    fuse_lowlevel_notify_inval_inode(session, ino, -1, 0);
    file->fh = (uintptr_t)stream;
    if (fuse_reply_open(request, file))
        closedir(stream);
}

static int is_dots(const char *text) {
    return !strcmp(text, ".") || !strcmp(text, "..");
}

/* Add one entry to the answer; returns the bytes it takes, more than `room` if it did not fit. */
static size_t add_entry(fuse_req_t request, struct node *folder, struct dirent *found, char *answer, size_t room,
                        int plus) {
    struct fuse_entry_param entry = {.attr = {.st_ino = found->d_ino, .st_mode = found->d_type << 12}};
    if (!plus)
        return fuse_add_direntry(request, answer, room, found->d_name, &entry.attr, found->d_off);
    /* Removed since it was listed: told as an entry without a node. */
    int counted = !is_dots(found->d_name) && !look_up(folder, found->d_name, &entry);
    size_t size = fuse_add_direntry_plus(request, answer, room, found->d_name, &entry, found->d_off);
    if (counted && size > room)
        forget(node_of(entry.ino), 1);
    return size;
}

static void list_folder(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *file,
                        int plus) {
    DIR *stream = (DIR *)(uintptr_t)file->fh;
    char *answer = malloc(size);
    size_t used = 0;
    struct dirent *found;
    if (offset)
        seekdir(stream, offset);
    else
        rewinddir(stream);
    while ((found = readdir(stream))) {
        size_t taken = add_entry(request, node_of(ino), found, answer + used, size - used, plus);
        if (taken > size - used)
            break;
        used += taken;
    }
    fuse_reply_buf(request, answer, used);
    free(answer);
}

static void late_readdir(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *file) {
    list_folder(request, ino, size, offset, file, 0);
}

static void late_readdirplus(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                             struct fuse_file_info *file) {
    list_folder(request, ino, size, offset, file, 1);
}

static void late_releasedir(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *file) {
    (void)ino;
    closedir((DIR *)(uintptr_t)file->fh);
    fuse_reply_err(request, 0);
}

static void late_fsyncdir(fuse_req_t request, fuse_ino_t ino, int data_only, struct fuse_file_info *file) {
    (void)ino;
    (void)data_only;
    fuse_reply_err(request, fsync(dirfd((DIR *)(uintptr_t)file->fh)) ? errno : 0);
}

static void late_statfs(fuse_req_t request, fuse_ino_t ino) {
    struct statvfs room;
    if (fstatvfs(node_of(ino)->fd, &room))
        fuse_reply_err(request, errno);
    else
        fuse_reply_statfs(request, &room);
}

static void late_flock(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *file, int operation) {
    (void)ino;
    int error;
    /* Asked again and again, so that a caller who is killed while it waits is let go. */
    do {
        error = flock(file->fh, operation | LOCK_NB) ? errno : 0;
        if (error != EWOULDBLOCK || operation & LOCK_NB)
            break;
        usleep(LOCK_POLL_MICROSECONDS);
    } while (!fuse_req_interrupted(request));
    fuse_reply_err(request, error == EWOULDBLOCK && !(operation & LOCK_NB) ? EINTR : error);
}

static void late_getlk(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *file, struct flock *lock) {
    (void)ino;
    lock->l_pid = 0;
    if (fcntl(file->fh, F_OFD_GETLK, lock))
        fuse_reply_err(request, errno);
    else
        fuse_reply_lock(request, lock);
}

static void late_setlk(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *file, struct flock *lock,
                       int patient) {
    (void)ino;
    int error;
    lock->l_pid = 0;
    do {
        error = fcntl(file->fh, F_OFD_SETLK, lock) ? errno : 0;
        if ((error != EAGAIN && error != EACCES) || !patient)
            break;
        usleep(LOCK_POLL_MICROSECONDS);
    } while (!fuse_req_interrupted(request));
    fuse_reply_err(request, error);
}

static const struct fuse_lowlevel_ops operations = {
    .init = late_init, .lookup = late_lookup, .forget = late_forget, .forget_multi = late_forget_multi,
    .getattr = late_getattr, .setattr = late_setattr, .readlink = late_readlink, .mknod = late_mknod,
    .mkdir = late_mkdir, .unlink = late_unlink, .rmdir = late_rmdir, .symlink = late_symlink,
    .rename = late_rename, .link = late_link, .open = late_open, .create = late_create, .read = late_read,
    .write = late_write, .release = late_release, .fsync = late_fsync, .fallocate = late_fallocate,
    .opendir = late_opendir, .readdir = late_readdir, .readdirplus = late_readdirplus,
    .releasedir = late_releasedir, .fsyncdir = late_fsyncdir, .statfs = late_statfs, .flock = late_flock,
    .getlk = late_getlk, .setlk = late_setlk,
};

int main(int argc, char **argv) {
    char mount_options[256];
    if (argc != 5) {
        fprintf(stderr, "usage: late_names BACKING MOUNTPOINT SECONDS CLIENT\n");
        return 2;
    }
    snprintf(mount_options, sizeof mount_options, "-oallow_other,default_permissions,fsname=%s", argv[4]);
    char *options[] = {argv[0], mount_options};
    struct fuse_args arguments = FUSE_ARGS_INIT(2, options);
    struct fuse_loop_config *loop = fuse_loop_cfg_create();
    struct stat attributes;
    umask(0);
    seconds = atof(argv[3]);
    root.fd = open(argv[1], O_PATH | O_CLOEXEC);
    if (root.fd < 0 || fstat(root.fd, &attributes)) {
        perror(argv[1]);
        return 1;
    }
    root.ino = attributes.st_ino;
    root.dev = attributes.st_dev;
    session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[2]))
        return 1;
    fuse_loop_cfg_set_max_threads(loop, THREADS);
    int result = fuse_session_loop_mt(session, loop);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return result < 0;
}
