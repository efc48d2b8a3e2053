/* The PMI-1 functions, for programs that load them instead of speaking the wire protocol (RFC 13).
 *
 * Open MPI 4 does so: it looks for this library in FLUX_PMI_LIBRARY_PATH. The server is our
 * shell's, at the other end of PMI_FD (pmi.py). What that does not offer, spawning and the
 * publishing of names, fails here. Not for several threads at a time, as PMI-1 has it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    PMI_SUCCESS = 0,
    PMI_FAIL = -1,
    PMI_ERR_INIT = 1,
    PMI_ERR_INVALID_ARG = 3,
    PMI_ERR_INVALID_KEY = 4,
    PMI_ERR_INVALID_KEY_LENGTH = 5,
    PMI_ERR_INVALID_VAL_LENGTH = 7,
    PMI_ERR_INVALID_LENGTH = 8,
    PMI_ERR_INVALID_SIZE = 13,
};

#define EXPORTED __attribute__((visibility("default")))
#define LINE_MAX 4096 /* as the server has it */

static struct {
    int fd, rank, size;
    int name_max, key_max, value_max;
    char name[LINE_MAX];
    char mapping[LINE_MAX];
    char held[LINE_MAX]; /* received, and not read yet */
    size_t holds;
    int initialized;
} pmi = {.fd = -1};

/* The wire */

static int send_line(const char *line, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(pmi.fd, line, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return PMI_FAIL;
        line += sent;
        length -= (size_t)sent;
    }
    return PMI_SUCCESS;
}

static int receive_line(char answer[LINE_MAX])
{
    for (;;) {
        char *end = memchr(pmi.held, '\n', pmi.holds);
        if (end != NULL) {
            size_t length = (size_t)(end - pmi.held);
            memcpy(answer, pmi.held, length);
            answer[length] = '\0';
            pmi.holds -= length + 1;
            memmove(pmi.held, end + 1, pmi.holds);
            return PMI_SUCCESS;
        }
        if (pmi.holds == LINE_MAX)
            return PMI_FAIL;
        ssize_t got = recv(pmi.fd, pmi.held + pmi.holds, LINE_MAX - pmi.holds, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return PMI_FAIL;
        pmi.holds += (size_t)got;
    }
}

/* Return what follows " name=" in an answer, up to the end of the line; NULL where it is not. */
static const char *found(const char *answer, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = answer; (at = strchr(at, ' ')) != NULL;)
        if (strncmp(++at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
    return NULL;
}

static int number(const char *answer, const char *name, int *value)
{
    const char *text = found(answer, name);
    return text != NULL && sscanf(text, "%d", value) == 1 ? PMI_SUCCESS : PMI_FAIL;
}

/* Send a request, and take the answer, which must be `cmd=expected`, and not say that it failed. */
__attribute__((format(printf, 3, 4)))
static int ask(char answer[LINE_MAX], const char *expected, const char *format, ...)
{
    char line[LINE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line - 1)
        return PMI_ERR_INVALID_LENGTH;
    line[length++] = '\n';
    if (send_line(line, (size_t)length) != PMI_SUCCESS || receive_line(answer) != PMI_SUCCESS)
        return PMI_FAIL;
    size_t words = strlen(expected);
    if (strncmp(answer, "cmd=", 4) != 0 || strncmp(answer + 4, expected, words) != 0 ||
        (answer[4 + words] != ' ' && answer[4 + words] != '\0'))
        return PMI_FAIL;
    int rc = 0;
    return number(answer, "rc", &rc) == PMI_SUCCESS && rc != 0 ? PMI_FAIL : PMI_SUCCESS;
}

/* Ask for one of the numbers that have an answer of their own. */
static int ask_number(const char *answer_is, const char *name, int *value)
{
    char answer[LINE_MAX];
    if (!pmi.initialized)
        return PMI_ERR_INIT;
    if (value == NULL)
        return PMI_ERR_INVALID_ARG;
    int status = ask(answer, answer_is, "cmd=get_%s", answer_is);
    return status != PMI_SUCCESS ? status : number(answer, name, value);
}

static int from_environment(const char *name, int *value)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || *text == '\0')
        return PMI_FAIL;
    long parsed = strtol(text, &end, 10);
    if (*end != '\0' || parsed < 0 || parsed > 0x7fffffff)
        return PMI_FAIL;
    *value = (int)parsed;
    return PMI_SUCCESS;
}

/* Beginning and end */

EXPORTED int PMI_Init(int *spawned)
{
    char answer[LINE_MAX];
    if (spawned == NULL)
        return PMI_ERR_INVALID_ARG;
    *spawned = 0;
    if (pmi.initialized)
        return PMI_SUCCESS;
    if (from_environment("PMI_FD", &pmi.fd) || from_environment("PMI_RANK", &pmi.rank) ||
        from_environment("PMI_SIZE", &pmi.size) || pmi.rank >= pmi.size)
        return PMI_FAIL;
    pmi.holds = 0;
    if (ask(answer, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1") ||
        ask(answer, "maxes", "cmd=get_maxes") ||
        number(answer, "kvsname_max", &pmi.name_max) ||
        number(answer, "keylen_max", &pmi.key_max) || number(answer, "vallen_max", &pmi.value_max))
        return PMI_FAIL;
    if (ask(answer, "my_kvsname", "cmd=get_my_kvsname") || found(answer, "kvsname") == NULL)
        return PMI_FAIL;
    strcpy(pmi.name, found(answer, "kvsname"));
    pmi.name[strcspn(pmi.name, " ")] = '\0';
    pmi.mapping[0] = '\0';
    if (ask(answer, "get_result", "cmd=get kvsname=%s key=PMI_process_mapping", pmi.name) == 0 &&
        found(answer, "value") != NULL)
        strcpy(pmi.mapping, found(answer, "value"));
    pmi.initialized = 1;
    return PMI_SUCCESS;
}

EXPORTED int PMI_Initialized(int *initialized)
{
    if (initialized == NULL)
        return PMI_ERR_INVALID_ARG;
    *initialized = pmi.initialized;
    return PMI_SUCCESS;
}

EXPORTED int PMI_Finalize(void)
{
    char answer[LINE_MAX];
    if (!pmi.initialized)
        return PMI_ERR_INIT;
    pmi.initialized = 0;
    return ask(answer, "finalize_ack", "cmd=finalize");
}

EXPORTED int PMI_Abort(int code, const char message[])
{
    char line[256];
    int length = snprintf(line, sizeof line - 1, "cmd=abort exitcode=%d error_msg=%s", code,
                          message != NULL ? message : "");
    if (pmi.initialized && length > 0) {
        line[strcspn(line, "\n")] = '\0';
        length = (int)strlen(line);
        line[length++] = '\n';
        (void)send_line(line, (size_t)length);
    }
    exit(code);
}

/* Who is who */

EXPORTED int PMI_Get_size(int *size)
{
    if (!pmi.initialized || size == NULL)
        return pmi.initialized ? PMI_ERR_INVALID_ARG : PMI_ERR_INIT;
    *size = pmi.size;
    return PMI_SUCCESS;
}

EXPORTED int PMI_Get_rank(int *rank)
{
    if (!pmi.initialized || rank == NULL)
        return pmi.initialized ? PMI_ERR_INVALID_ARG : PMI_ERR_INIT;
    *rank = pmi.rank;
    return PMI_SUCCESS;
}

EXPORTED int PMI_Get_universe_size(int *size)
{
    return ask_number("universe_size", "size", size);
}

EXPORTED int PMI_Get_appnum(int *appnum)
{
    return ask_number("appnum", "appnum", appnum);
}

/* Return the node of a rank, by PMI_process_mapping: blocks of (first node, nodes, tasks on each),
 * again and again until all ranks have one; -1 where it does not say. */
static int node_of(int rank)
{
    static const char head[] = "(vector,";
    if (strncmp(pmi.mapping, head, sizeof head - 1) != 0)
        return -1;
    for (int passed = 0;;) {
        int before = passed, first, nodes, tasks;
        const char *block = pmi.mapping + sizeof head - 1;
        while (block != NULL && sscanf(block, "(%d,%d,%d)", &first, &nodes, &tasks) == 3) {
            if (nodes < 1 || tasks < 1 || nodes > pmi.size || tasks > pmi.size)
                return -1;
            if ((rank - passed) / tasks < nodes)
                return first + (rank - passed) / tasks;
            passed += nodes * tasks;
            block = strchr(block + 1, '(');
        }
        if (passed == before)
            return -1;
    }
}

/* Count the ranks on this node, and write the first `room` of them down. */
static int clique(int ranks[], int room)
{
    int own = node_of(pmi.rank), count = 0;
    for (int rank = 0; rank < pmi.size; rank++) {
        if (own < 0 ? rank != pmi.rank : node_of(rank) != own)
            continue;
        if (count < room)
            ranks[count] = rank;
        count++;
    }
    return count;
}

EXPORTED int PMI_Get_clique_size(int *size)
{
    if (!pmi.initialized || size == NULL)
        return pmi.initialized ? PMI_ERR_INVALID_ARG : PMI_ERR_INIT;
    *size = clique(NULL, 0);
    return PMI_SUCCESS;
}

EXPORTED int PMI_Get_clique_ranks(int ranks[], int length)
{
    if (!pmi.initialized || ranks == NULL)
        return pmi.initialized ? PMI_ERR_INVALID_ARG : PMI_ERR_INIT;
    return clique(ranks, length) > length ? PMI_ERR_INVALID_SIZE : PMI_SUCCESS;
}

/* Keys and values */

static int copied(char into[], int length, const char *text)
{
    if (into == NULL)
        return PMI_ERR_INVALID_ARG;
    if (length < 1 || strlen(text) >= (size_t)length)
        return PMI_ERR_INVALID_LENGTH;
    strcpy(into, text);
    return PMI_SUCCESS;
}

static int maximum(int *length, int value)
{
    if (!pmi.initialized || length == NULL)
        return pmi.initialized ? PMI_ERR_INVALID_ARG : PMI_ERR_INIT;
    *length = value;
    return PMI_SUCCESS;
}

EXPORTED int PMI_KVS_Get_my_name(char name[], int length)
{
    return pmi.initialized ? copied(name, length, pmi.name) : PMI_ERR_INIT;
}

EXPORTED int PMI_KVS_Get_name_length_max(int *length)
{
    return maximum(length, pmi.name_max);
}

EXPORTED int PMI_KVS_Get_key_length_max(int *length)
{
    return maximum(length, pmi.key_max);
}

EXPORTED int PMI_KVS_Get_value_length_max(int *length)
{
    return maximum(length, pmi.value_max);
}

EXPORTED int PMI_KVS_Put(const char name[], const char key[], const char value[])
{
    char answer[LINE_MAX];
    if (!pmi.initialized)
        return PMI_ERR_INIT;
    if (name == NULL || key == NULL || value == NULL)
        return PMI_ERR_INVALID_ARG;
    if (strlen(key) >= (size_t)pmi.key_max)
        return PMI_ERR_INVALID_KEY_LENGTH;
    if (strlen(value) >= (size_t)pmi.value_max)
        return PMI_ERR_INVALID_VAL_LENGTH;
    if (*key == '\0' || strpbrk(key, " =\t\n") != NULL || strchr(value, '\n') != NULL)
        return PMI_ERR_INVALID_ARG;
    return ask(answer, "put_result", "cmd=put kvsname=%s key=%s value=%s", name, key, value);
}

/* What was put reaches the others with the next barrier. */
EXPORTED int PMI_KVS_Commit(const char name[])
{
    if (!pmi.initialized)
        return PMI_ERR_INIT;
    return name != NULL ? PMI_SUCCESS : PMI_ERR_INVALID_ARG;
}

EXPORTED int PMI_KVS_Get(const char name[], const char key[], char value[], int length)
{
    char answer[LINE_MAX];
    if (!pmi.initialized)
        return PMI_ERR_INIT;
    if (name == NULL || key == NULL)
        return PMI_ERR_INVALID_ARG;
    if (ask(answer, "get_result", "cmd=get kvsname=%s key=%s", name, key) != PMI_SUCCESS)
        return PMI_ERR_INVALID_KEY;
    const char *text = found(answer, "value");
    return text != NULL ? copied(value, length, text) : PMI_FAIL;
}

EXPORTED int PMI_Barrier(void)
{
    char answer[LINE_MAX];
    return pmi.initialized ? ask(answer, "barrier_out", "cmd=barrier_in") : PMI_ERR_INIT;
}

/* What the server does not offer */

EXPORTED int PMI_Publish_name(const char service[], const char port[])
{
    (void)service, (void)port;
    return PMI_FAIL;
}

EXPORTED int PMI_Unpublish_name(const char service[])
{
    (void)service;
    return PMI_FAIL;
}

EXPORTED int PMI_Lookup_name(const char service[], char port[])
{
    (void)service, (void)port;
    return PMI_FAIL;
}
