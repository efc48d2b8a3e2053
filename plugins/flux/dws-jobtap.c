/* The `dws` jobtap plugin: holds jobs while their storage is made ready, and given back.
 *
 * For a real flux-core; the embedded instance has the same plugin in Python
 * (src/warren/wlm/embedded/plugin.py), and one table of cases drives both
 * (tests/wlm/plugin_cases.py). Topics and payloads are those of flux-coral2
 * (coral2-spec section 3). ADR 081 says what was decided, and what cannot be had.
 *
 * What is done next follows from the job's state and from what its eventlog
 * tells (`seen`), so that every callback may be repeated. After the plugin is
 * loaded anew, or Flux restarted, the logs are read from the job manager's
 * journal before anything is decided about jobs that were there before.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <syslog.h>
#include <unistd.h>

#include <flux/core.h>
#include <flux/jobtap.h>
#include <jansson.h>

#define DEPENDENCY "dws-create"
#define PROLOG "dws-setup"
#define EPILOG "dws-epilog"
#define EPILOG_TIMEOUT "dws-epilog-timeout"
#define ENVIRONMENT "dws_environment"
#define RELEASE "release"
#define EXISTS "\" already exists"
#define NOTE "DWS workflow interactions failed: "
#define SKEW "Plugin and conductor may be of different versions: update the older one."

/* How many requests may be unanswered at a time; others wait for their turn. */
#define MOST 64

/* What a job's eventlog has told. Bits are never cleared: to read a log twice does no harm. */
enum {
    HELD = 1,
    LET_GO = 2,
    PROLOG_STARTED = 4,
    PROLOG_FINISHED = 8,
    STARTED = 16,
    FINISHED = 32,
    EPILOG_STARTED = 64,
    EPILOG_FINISHED = 128,
    CREATED = 256,  /* the conductor has noted the Workflow: it knows the job */
    PLACED = 512,   /* it has noted the rabbits: it knows where the job runs */
};

static const struct {
    const char *name;
    const char *description;
    const char *memo;
    int told;
} events[] = {
    { "dependency-add", DEPENDENCY, NULL, HELD },
    { "dependency-remove", DEPENDENCY, NULL, LET_GO },
    { "prolog-start", PROLOG, NULL, PROLOG_STARTED },
    { "prolog-finish", PROLOG, NULL, PROLOG_FINISHED },
    { "start", NULL, NULL, STARTED },
    { "finish", NULL, NULL, FINISHED },
    { "epilog-start", EPILOG, NULL, EPILOG_STARTED },
    { "epilog-finish", EPILOG, NULL, EPILOG_FINISHED },
    { "memo", NULL, "rabbit_workflow", CREATED },
    { "memo", NULL, "rabbits", PLACED },
};

#define COUNT(array) (sizeof (array) / sizeof ((array)[0]))

/* What a job may ask of the conductor. The answer to one matters until the next is asked. */
enum request { NOTHING, CREATE, SETUP, POST_RUN, TEARDOWN };

static const struct {
    const char *topic;
    const char *exception; /* raised where it is refused; NULL for none */
    int from, to;          /* it matters after the one was seen, until the other is */
    int received;          /* what shows that the conductor has it */
} requests[] = {
    [NOTHING] = { NULL, NULL, 0, 0, 0 },
    [CREATE] = { "dws.create", DEPENDENCY, HELD, LET_GO, CREATED },
    [SETUP] = { "dws.setup", PROLOG, PROLOG_STARTED, PROLOG_FINISHED, PLACED },
    [POST_RUN] = { "dws.post_run", EPILOG, EPILOG_STARTED, EPILOG_FINISHED, 0 },
    [TEARDOWN] = { "dws.teardown", NULL, EPILOG_STARTED, EPILOG_FINISHED, 0 },
};

/* A job with directives. */
struct job {
    struct dws *dws; /* NULL once the plugin is being unloaded */
    flux_jobid_t id;
    int seen;
    bool known;            /* whether all of its log was read */
    enum request asked;    /* what is not answered yet */
    bool again;            /* whether the conductor may have received it before */
    bool waiting;          /* whether it is in the queue of requests */
    flux_future_t *answer; /* NULL while the request is in the queue */
    flux_watcher_t *limit;
    TAILQ_ENTRY (job) all;
    TAILQ_ENTRY (job) turn;
};

TAILQ_HEAD (jobs, job);

struct dws {
    flux_plugin_t *p;
    flux_t *h;
    double epilog_timeout;
    double retry_interval;    /* how often a conductor is looked for that is away */
    double answer_timeout;    /* after which a request may be lost: services that end say nothing */
    struct jobs jobs;
    struct jobs queue;        /* those whose request is to be sent, in their order */
    int unanswered;           /* requests on their way */
    bool away;                /* whether the conductor was not there when last asked */
    flux_watcher_t *retry;    /* active while something is in the queue for later */
    flux_future_t *journal;   /* not NULL while the logs of known jobs are being read */
    struct flux_msglist *early; /* requests of the conductor that came meanwhile */
};

static void answered (flux_future_t *f, void *arg);
static void late (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg);

/* What is known */

static struct job *find (struct dws *dws, flux_jobid_t id)
{
    return flux_jobtap_job_aux_get (dws->p, id, "dws");
}

/* Whether a hold has begun and not ended. */
static bool active (const struct job *job, int from, int to)
{
    return (job->seen & from) && !(job->seen & to);
}

/* Whether the job still waits for what it has asked for. */
static bool waits (const struct job *job)
{
    return job->asked != NOTHING
           && active (job, requests[job->asked].from, requests[job->asked].to);
}

/* Return what an event tells of a job. */
static int told_by (const char *name, json_t *context)
{
    int told = 0;

    for (size_t i = 0; i < COUNT (events); i++) {
        if (strcmp (events[i].name, name) != 0)
            continue;
        if (events[i].memo && json_is_null (json_object_get (context, events[i].memo)))
            continue; /* it was taken back */
        if (events[i].memo && !json_object_get (context, events[i].memo))
            continue;
        if (events[i].description) {
            const char *said = json_string_value (json_object_get (context, "description"));
            if (!said || strcmp (said, events[i].description) != 0)
                continue;
        }
        told |= events[i].told;
    }
    /* Tasks that were lost with the broker have no finish: that they are gone, this tells. */
    if (strcmp (name, RELEASE) == 0 && json_is_true (json_object_get (context, "final")))
        told |= FINISHED;
    return told;
}

static flux_job_state_t state_of (struct dws *dws, flux_jobid_t id)
{
    flux_plugin_arg_t *args = flux_jobtap_job_lookup (dws->p, id);
    int state = FLUX_JOB_STATE_INACTIVE;

    if (!args || flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:i}", "state", &state) < 0)
        state = FLUX_JOB_STATE_INACTIVE;
    flux_plugin_arg_destroy (args);
    return state;
}

/* Requests to the conductor, and their answers */

static void retry_later (struct dws *dws)
{
    if (!flux_watcher_is_active (dws->retry)) {
        flux_timer_watcher_reset (dws->retry, dws->retry_interval, dws->retry_interval);
        flux_watcher_start (dws->retry);
    }
}

/* Forget what a job has asked. */
static void withdraw (struct job *job)
{
    if (job->waiting)
        TAILQ_REMOVE (&job->dws->queue, job, turn);
    job->waiting = false;
    if (job->answer) {
        flux_future_destroy (job->answer);
        job->dws->unanswered--;
        if (!TAILQ_EMPTY (&job->dws->queue))
            retry_later (job->dws); /* others wait for its place, and not every caller may send */
    }
    job->answer = NULL;
    job->asked = NOTHING;
}

/* Return the payload of what a job asks; NULL where the job is not there any more. */
static json_t *payload_of (struct job *job)
{
    flux_plugin_arg_t *args = flux_jobtap_job_lookup (job->dws->p, job->id);
    json_int_t id = (json_int_t)job->id;
    json_t *payload = NULL, *resources, *directives, *tolerance = NULL, *r = NULL;
    int userid;

    if (!args)
        return NULL;
    switch (job->asked) {
    case CREATE:
        if (flux_plugin_arg_unpack (args,
                                    FLUX_PLUGIN_ARG_IN,
                                    "{s:i s:{s:o s:{s:{s:o s?o}}}}",
                                    "userid", &userid,
                                    "jobspec",
                                      "resources", &resources,
                                      "attributes",
                                        "system",
                                          "dw", &directives,
                                          "dw_failure_tolerance", &tolerance) == 0) {
            payload = json_pack ("{s:I s:i s:O s:O}",
                                 "jobid", id,
                                 "userid", userid,
                                 "dw_directives", directives,
                                 "resources", resources);
            if (payload)
                json_object_set_new (payload,
                                     "failure_tolerance",
                                     tolerance ? json_incref (tolerance) : json_integer (0));
        }
        break;
    case SETUP:
        if (flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:o}", "R", &r) == 0)
            payload = json_pack ("{s:I s:O}", "jobid", id, "R", r);
        break;
    case POST_RUN:
        payload = json_pack ("{s:I s:b}",
                             "jobid", id,
                             "run_started", job->seen & STARTED ? 1 : 0);
        break;
    case TEARDOWN:
        payload = json_pack ("{s:I}", "jobid", id);
        break;
    case NOTHING:
        break;
    }
    flux_plugin_arg_destroy (args);
    return payload;
}

static void send_request (struct job *job)
{
    struct dws *dws = job->dws;
    const char *topic = requests[job->asked].topic;
    json_t *payload = payload_of (job);

    if (!payload) {
        flux_log (dws->h, LOG_ERR, "dws: %s of job %ju cannot be made", topic, (uintmax_t)job->id);
        job->asked = NOTHING;
        return;
    }
    job->answer = flux_rpc_pack (dws->h, topic, FLUX_NODEID_ANY, 0, "O", payload);
    json_decref (payload);
    if (!job->answer || flux_future_then (job->answer, dws->answer_timeout, answered, job) < 0) {
        flux_log_error (dws->h, "dws: %s of job %ju", topic, (uintmax_t)job->id);
        flux_future_destroy (job->answer);
        job->answer = NULL;
        job->waiting = true;
        TAILQ_INSERT_TAIL (&dws->queue, job, turn);
        dws->away = true;
        return;
    }
    dws->unanswered++;
}

/* Send what is in the queue: of a conductor that was away, one request shows whether it is back. */
static void send_queue (struct dws *dws)
{
    int most = dws->away ? 1 : MOST;

    while (dws->unanswered < most && !TAILQ_EMPTY (&dws->queue)) {
        struct job *job = TAILQ_FIRST (&dws->queue);
        bool was_away = dws->away;

        TAILQ_REMOVE (&dws->queue, job, turn);
        job->waiting = false;
        if (waits (job))
            send_request (job);
        else
            job->asked = NOTHING;
        if (dws->away && !was_away)
            break; /* it could not be sent */
    }
}

static void retry_queue (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg)
{
    struct dws *dws = arg;

    (void)r, (void)revents;
    send_queue (dws);
    if (TAILQ_EMPTY (&dws->queue))
        flux_watcher_stop (w);
}

static void enqueue (struct job *job)
{
    struct dws *dws = job->dws;

    TAILQ_INSERT_TAIL (&dws->queue, job, turn);
    job->waiting = true;
    if (dws->away)
        retry_later (dws);
    else
        send_queue (dws);
}

/* Ask something of the conductor; `again` where an earlier life of the plugin may have. */
static void ask (struct job *job, enum request what, bool again)
{
    withdraw (job);
    job->asked = what;
    job->again = again;
    enqueue (job);
}

/* Whether a request may reach the conductor if it is repeated. */
static bool is_passing (int errnum)
{
    return errnum == ENOSYS || errnum == ETIMEDOUT || errnum == EHOSTUNREACH
           || errnum == ECONNRESET || errnum == EAGAIN;
}

static void refused (struct job *job, enum request what, bool again, const char *why)
{
    struct dws *dws = job->dws;
    const char *exception = requests[what].exception;
    bool received = job->seen & requests[what].received;

    /* Of a request that was received before, the second may be refused because of the first. What
     * is wrong with a job may quote its author: only the API's own words are about the Workflow. */
    if (again && (what == POST_RUN || received || (what == CREATE && strstr (why, EXISTS))))
        exception = NULL;
    if (!exception || !active (job, requests[what].from, requests[what].to)) {
        flux_log (dws->h, LOG_INFO, "dws: %s of job %ju was refused, to no effect: %s",
                  requests[what].topic, (uintmax_t)job->id, why);
        return;
    }
    if (flux_jobtap_raise_exception (dws->p, job->id, exception, 0, NOTE "%s", why) < 0)
        flux_log_error (dws->h, "dws: exception for job %ju", (uintmax_t)job->id);
}

static void answered (flux_future_t *f, void *arg)
{
    struct job *job = arg;
    struct dws *dws = job->dws;
    enum request what = job->asked;
    const char *topic = requests[what].topic, *text, *why = "no reason was given";
    int success;

    job->answer = NULL;
    dws->unanswered--;
    if (flux_rpc_get (f, &text) < 0 && is_passing (errno)) {
        /* The conductor is away, which costs no job: it is asked again when it is back. */
        if (!dws->away && errno != ETIMEDOUT)
            flux_log (dws->h, LOG_WARNING, "dws: %s: the conductor does not answer: %s",
                      topic, future_strerror (f, errno));
        dws->away = dws->away || errno != ETIMEDOUT;
        job->again = job->again || errno != ENOSYS;
        if (waits (job) && !(job->again && (job->seen & requests[what].received)))
            enqueue (job);
        else
            job->asked = NOTHING;
        flux_future_destroy (f);
        /* Others may have waited for its place. */
        if (!dws->away)
            send_queue (dws);
        else if (!TAILQ_EMPTY (&dws->queue))
            retry_later (dws);
        return;
    }
    dws->away = false;
    job->asked = NOTHING;
    if (flux_rpc_get (f, &text) < 0)
        flux_log (dws->h, LOG_ERR, "dws: %s of job %ju: %s",
                  topic, (uintmax_t)job->id, future_strerror (f, errno));
    else if (flux_rpc_get_unpack (f, "{s:b s?s}", "success", &success, "errstr", &why) < 0)
        flux_log (dws->h, LOG_ERR, "dws: the answer to %s of job %ju is not understood. %s",
                  topic, (uintmax_t)job->id, SKEW);
    else if (!success)
        refused (job, what, job->again, why); /* with which the job may go: it is not looked at */
    flux_future_destroy (f);
    send_queue (dws);
}

/* Holding jobs, and letting them go */

static int begin_limit (struct job *job)
{
    flux_reactor_t *reactor = flux_get_reactor (job->dws->h);

    if (job->dws->epilog_timeout <= 0. || job->limit)
        return 0;
    job->limit = flux_timer_watcher_create (reactor, job->dws->epilog_timeout, 0., late, job);
    if (!job->limit)
        return -1;
    flux_watcher_start (job->limit);
    return 0;
}

static void end_limit (struct job *job)
{
    flux_watcher_destroy (job->limit);
    job->limit = NULL;
}

static int hold (struct job *job)
{
    if (job->seen & HELD)
        return 0;
    if (flux_jobtap_dependency_add (job->dws->p, job->id, DEPENDENCY) < 0)
        return -1;
    job->seen |= HELD;
    ask (job, CREATE, false);
    return 0;
}

static int hold_start (struct job *job)
{
    if (job->seen & (PROLOG_STARTED | STARTED))
        return 0;
    if (flux_jobtap_prolog_start (job->dws->p, PROLOG) < 0)
        return -1;
    job->seen |= PROLOG_STARTED;
    ask (job, SETUP, false);
    return 0;
}

/* Stop keeping the tasks from starting: the job has failed. */
static int let_start (struct job *job)
{
    if (!active (job, PROLOG_STARTED, PROLOG_FINISHED))
        return 0;
    job->seen |= PROLOG_FINISHED;
    return flux_jobtap_prolog_finish (job->dws->p, job->id, PROLOG, 1);
}

static int hold_end (struct job *job)
{
    job->seen |= LET_GO; /* as far as it goes: nothing waits for the scheduler any more */
    /* Not before the tasks are gone: they have the storage mounted. */
    if ((job->seen & EPILOG_STARTED) || active (job, STARTED, FINISHED))
        return 0;
    if (flux_jobtap_epilog_start (job->dws->p, EPILOG) < 0)
        return -1;
    job->seen |= EPILOG_STARTED;
    ask (job, POST_RUN, false);
    return begin_limit (job);
}

/* Do what is next for the job that is the current one, in whatever state it is found. */
static int step (struct job *job, flux_job_state_t state)
{
    int rc = 0;

    switch (state) {
    case FLUX_JOB_STATE_DEPEND:
        rc = hold (job);
        break;
    case FLUX_JOB_STATE_RUN:
        rc = hold_start (job);
        break;
    case FLUX_JOB_STATE_CLEANUP:
        /* What is posted from a callback happens after it: the job does not go in between. */
        rc = let_start (job);
        if (hold_end (job) < 0)
            rc = -1;
        break;
    default:
        break;
    }
    if (rc == 0)
        return 0;
    flux_log_error (job->dws->h, "dws: job %ju cannot be held in %s",
                    (uintmax_t)job->id, flux_job_statetostr (state, "L"));
    if (state != FLUX_JOB_STATE_CLEANUP)
        flux_jobtap_raise_exception (job->dws->p, job->id, "dws", 0,
                                     "the job cannot be held until its storage is ready");
    return -1;
}

static void late (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg)
{
    struct job *job = arg;

    (void)r, (void)w, (void)revents;
    if (active (job, EPILOG_STARTED, EPILOG_FINISHED)
        && flux_jobtap_raise_exception (job->dws->p, job->id, EPILOG_TIMEOUT, 0,
                                        "DWS epilog timed out") < 0)
        flux_log_error (job->dws->h, "dws: exception for job %ju", (uintmax_t)job->id);
}

/* Tell the conductor that a job is let go before its storage. The job is there no more. */
static void send_abort (struct dws *dws, flux_jobid_t id)
{
    flux_future_t *f = flux_rpc_pack (dws->h, "dws.abort", FLUX_NODEID_ANY, FLUX_RPC_NORESPONSE,
                                      "{s:I}", "jobid", (json_int_t)id);

    if (!f)
        flux_log_error (dws->h, "dws: dws.abort of job %ju", (uintmax_t)id);
    flux_future_destroy (f);
}

/* An exception that comes while the storage is being given back. */
static int excepted (struct job *job, json_t *context)
{
    const char *type = "";
    int severity = 7;
    json_int_t userid = -1;

    if (json_unpack (context, "{s:s s:i s?I}",
                     "type", &type, "severity", &severity, "userid", &userid) < 0
        || severity != 0
        || !active (job, EPILOG_STARTED, EPILOG_FINISHED))
        return 0;
    /* Of those who raise it by hand, the owner alone is believed: a guest's word lets no job go. */
    if (strcmp (type, EPILOG_TIMEOUT) == 0
        && (userid < 0 || userid == FLUX_USERID_UNKNOWN || userid == (json_int_t)getuid ())) {
        job->seen |= EPILOG_FINISHED;
        withdraw (job);
        end_limit (job);
        send_abort (job->dws, job->id);
        return flux_jobtap_epilog_finish (job->dws->p, job->id, EPILOG, 1);
    }
    /* Where nothing has run, PostRun is Teardown already. */
    if (job->asked != POST_RUN || (job->seen & STARTED))
        ask (job, TEARDOWN, false);
    return 0;
}

/* What the conductor asks. All may be repeated: a job that is past it is left alone. */

static int malformed (struct dws *dws, const flux_msg_t *msg)
{
    return flux_respond_error (dws->h, msg, EPROTO, "received malformed request. " SKEW);
}

static int failed (struct dws *dws, const flux_msg_t *msg, flux_jobid_t id, const char *what)
{
    int errnum = errno;
    char text[128];

    snprintf (text, sizeof (text), "could not %s: %s", what, flux_strerror (errnum));
    flux_log (dws->h, LOG_ERR, "dws: job %ju: %s", (uintmax_t)id, text);
    return flux_respond_error (dws->h, msg, errnum, text);
}

/* Return the job's constraints with what excludes nodes added to them. */
static json_t *constrained (json_t *system, json_t *exclude)
{
    json_t *own = json_object_get (system, "constraints");
    json_t *both = own && !json_is_null (own) && json_object_size (own) > 0
                       ? json_pack ("{s:[O,O]}", "and", own, exclude)
                       : json_incref (exclude);

    if (!json_is_true (json_object_get (system, "allow_rabbits")))
        return both;
    /* Rabbits have no property of a rabbit that is lost: those that are asked for may be had. */
    return json_pack ("{s:[{s:[s]},o]}", "or", "properties", "rabbit", both);
}

/* Set what is ours. It is set in any case: what a job's author has written there is not asked for. */
static void set_own (json_t *updates, const char *path, json_t *given, json_t *own, json_t *none)
{
    bool is_empty = !given || (json_object_size (given) == 0 && json_array_size (given) == 0);

    if (!is_empty || (own && !json_is_null (own)))
        json_object_set (updates, path, is_empty ? none : given);
    json_decref (none);
}

static json_t *updates_of (json_t *system,
                           json_t *resources,
                           json_t *exclude,
                           json_t *dw_constraints,
                           json_t *requires)
{
    json_t *updates = json_pack ("{s:O}", "resources", resources);

    if (!updates)
        return NULL;
    if (!json_is_null (exclude))
        json_object_set_new (updates,
                             "attributes.system.constraints",
                             constrained (system, exclude));
    set_own (updates, "attributes.system.dw_constraints", dw_constraints,
             json_object_get (system, "dw_constraints"), json_object ());
    set_own (updates, "attributes.system.dw_requires", requires,
             json_object_get (system, "dw_requires"), json_array ());
    return updates;
}

static int resource_update (struct dws *dws, const flux_msg_t *msg)
{
    json_int_t id;
    json_t *resources, *exclude, *errmsg = NULL, *dw_constraints = NULL, *requires = NULL;
    json_t *system, *updates = NULL;
    flux_plugin_arg_t *args;
    struct job *job;
    int rc;

    if (flux_request_unpack (msg, NULL, "{s:I s:o s:o s?o s?o s?o}",
                             "id", &id, "resources", &resources, "exclude", &exclude,
                             "errmsg", &errmsg, "dw_constraints", &dw_constraints,
                             "requires", &requires) < 0
        || !json_is_array (resources)
        || !(json_is_object (exclude) || json_is_null (exclude))
        || (errmsg && !json_is_string (errmsg) && !json_is_null (errmsg))
        || (dw_constraints && !json_is_object (dw_constraints))
        || (requires && !json_is_array (requires)))
        return malformed (dws, msg);
    job = find (dws, id);
    if (!job || !active (job, HELD, LET_GO)
        || state_of (dws, id) != FLUX_JOB_STATE_DEPEND)
        return flux_respond (dws->h, msg, NULL);
    if (json_is_string (errmsg)) {
        if (flux_jobtap_raise_exception (dws->p, id, DEPENDENCY, 0, NOTE "%s",
                                         json_string_value (errmsg)) < 0)
            return failed (dws, msg, id, "raise the exception");
        return flux_respond (dws->h, msg, NULL);
    }
    args = flux_jobtap_job_lookup (dws->p, id);
    if (args && flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:{s:{s:o}}}",
                                        "jobspec", "attributes", "system", &system) == 0)
        updates = updates_of (system, resources, exclude, dw_constraints, requires);
    flux_plugin_arg_destroy (args);
    rc = updates ? flux_jobtap_jobspec_update_id_pack (dws->p, id, "O", updates) : -1;
    json_decref (updates);
    if (rc < 0)
        return failed (dws, msg, id, "update the jobspec");
    job->seen |= LET_GO;
    if (flux_jobtap_dependency_remove (dws->p, id, DEPENDENCY) < 0)
        return failed (dws, msg, id, "remove the dependency");
    return flux_respond (dws->h, msg, NULL);
}

static int prolog_remove (struct dws *dws, const flux_msg_t *msg)
{
    json_int_t id;
    json_t *variables, *value;
    const char *name;
    struct job *job;

    if (flux_request_unpack (msg, NULL, "{s:I s:o}", "id", &id, "variables", &variables) < 0
        || !json_is_object (variables))
        return malformed (dws, msg);
    json_object_foreach (variables, name, value) {
        if (!json_is_string (value))
            return malformed (dws, msg);
    }
    job = find (dws, id);
    if (!job || !active (job, PROLOG_STARTED, PROLOG_FINISHED)
        || state_of (dws, id) != FLUX_JOB_STATE_RUN)
        return flux_respond (dws->h, msg, NULL);
    if (flux_jobtap_event_post_pack (dws->p, id, ENVIRONMENT, "{s:O}", "variables", variables) < 0)
        return failed (dws, msg, id, "post the event " ENVIRONMENT);
    job->seen |= PROLOG_FINISHED;
    if (flux_jobtap_prolog_finish (dws->p, id, PROLOG, 0) < 0)
        return failed (dws, msg, id, "finish the prolog");
    return flux_respond (dws->h, msg, NULL);
}

static int epilog_remove (struct dws *dws, const flux_msg_t *msg)
{
    json_int_t id;
    struct job *job;

    if (flux_request_unpack (msg, NULL, "{s:I}", "id", &id) < 0)
        return malformed (dws, msg);
    job = find (dws, id);
    if (!job || !active (job, EPILOG_STARTED, EPILOG_FINISHED))
        return flux_respond (dws->h, msg, NULL);
    job->seen |= EPILOG_FINISHED;
    withdraw (job);
    end_limit (job);
    if (flux_jobtap_epilog_finish (dws->p, id, EPILOG, 0) < 0)
        return failed (dws, msg, id, "finish the epilog");
    return flux_respond (dws->h, msg, NULL);
}

static int release (struct dws *dws, const flux_msg_t *msg)
{
    return flux_respond_error (dws->h, msg, ENOSYS,
                               "Flux gives a job's nodes back together: "
                               "wait for dws.epilog-remove.");
}

static const struct {
    const char *method;
    int (*serve) (struct dws *dws, const flux_msg_t *msg);
} services[] = {
    { "resource-update", resource_update },
    { "prolog-remove", prolog_remove },
    { "epilog-remove", epilog_remove },
    { "release", release },
};

static void serve (struct dws *dws, const flux_msg_t *msg)
{
    const char *topic = NULL, *method = NULL;

    if (flux_msg_get_topic (msg, &topic) == 0)
        method = strrchr (topic, '.');
    for (size_t i = 0; method && i < COUNT (services); i++) {
        if (strcmp (services[i].method, method + 1) == 0 && services[i].serve (dws, msg) < 0)
            flux_log_error (dws->h, "dws: %s was not answered", topic);
    }
}

static void requested (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    struct dws *dws = arg;

    (void)mh;
    if (!dws->journal)
        serve (dws, msg);
    else if (flux_msglist_append (dws->early, msg) < 0)
        flux_log_error (h, "dws: a request is lost");
}

/* Jobs that were there before the plugin: what their logs say */

/* Take up a job, which is made the current one for this. */
static int resume (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    struct job *job = flux_jobtap_job_aux_get (p, FLUX_JOBTAP_CURRENT_JOB, "dws");
    int state;

    (void)topic, (void)arg;
    if (!job || flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:i}", "state", &state) < 0)
        return 0;
    if (active (job, EPILOG_STARTED, EPILOG_FINISHED)) {
        /* It may have failed since the plugin was loaded, when its log was not read yet. */
        if (state == FLUX_JOB_STATE_CLEANUP && let_start (job) < 0)
            return -1;
        if (!job->asked)
            ask (job, POST_RUN, true);
        /* Anew: tasks that took long to end are no reason to let the job go at once. */
        return begin_limit (job);
    }
    /* What the conductor has received it will do: it is told once. */
    if (state == FLUX_JOB_STATE_DEPEND && active (job, HELD, LET_GO) && !job->asked
        && !(job->seen & CREATED))
        ask (job, CREATE, true);
    if (state == FLUX_JOB_STATE_RUN && active (job, PROLOG_STARTED, PROLOG_FINISHED)
        && !job->asked && !(job->seen & PLACED))
        ask (job, SETUP, true);
    /* Here events happen at once: the end is held first, or the job would go. */
    if (state == FLUX_JOB_STATE_CLEANUP) {
        int rc = hold_end (job);
        return let_start (job) < 0 ? -1 : rc;
    }
    return step (job, state);
}

/* All logs are read: take up the jobs, and then do what was asked meanwhile. */
static void resume_all (struct dws *dws)
{
    struct job *job;
    size_t count = 0;
    flux_jobid_t *ids;
    const flux_msg_t *msg;

    TAILQ_FOREACH (job, &dws->jobs, all)
        count++;
    /* One job's end may be another's: who is there is looked up anew for each. */
    ids = calloc (count + 1, sizeof (*ids));
    count = 0;
    TAILQ_FOREACH (job, &dws->jobs, all) {
        if (!job->known && ids)
            ids[count++] = job->id;
        job->known = true;
    }
    for (size_t i = 0; i < count; i++) {
        flux_plugin_arg_t *args = flux_jobtap_job_lookup (dws->p, ids[i]);
        if (args && flux_jobtap_call (dws->p, ids[i], "dws.resume", args) < 0)
            flux_log (dws->h, LOG_ERR, "dws: job %ju was not taken up", (uintmax_t)ids[i]);
        flux_plugin_arg_destroy (args);
    }
    free (ids);
    while ((msg = flux_msglist_pop (dws->early))) {
        serve (dws, msg);
        flux_msg_decref (msg);
    }
}

/* Where the journal cannot be read, tell from the names of events alone. */
static void read_names (struct dws *dws)
{
    struct job *job;

    TAILQ_FOREACH (job, &dws->jobs, all) {
        for (size_t i = 0; !job->known && i < COUNT (events); i++) {
            if (!events[i].memo
                && flux_jobtap_job_event_posted (dws->p, job->id, events[i].name) == 1)
                job->seen |= events[i].told;
        }
    }
}

static void end_journal (struct dws *dws)
{
    flux_future_destroy (dws->journal);
    dws->journal = NULL;
}

static void journal_read (flux_future_t *f, void *arg)
{
    struct dws *dws = arg;
    json_int_t id;
    json_t *entries, *entry;
    size_t index;
    struct job *job;

    if (flux_rpc_get_unpack (f, "{s:I s:o}", "id", &id, "events", &entries) < 0) {
        if (flux_future_aux_get (f, "done")) {
            end_journal (dws); /* as it was asked to */
            return;
        }
        flux_log (dws->h, LOG_ERR, "dws: the journal of jobs cannot be read: %s",
                  future_strerror (f, errno));
        read_names (dws);
        end_journal (dws);
        resume_all (dws);
        return;
    }
    if (id == -1) { /* all were told of */
        flux_future_t *cancel;

        cancel = flux_rpc_pack (dws->h, "job-manager.events-journal-cancel", FLUX_NODEID_ANY,
                                FLUX_RPC_NORESPONSE, "{s:i}",
                                "matchtag", (int)flux_rpc_get_matchtag (f));
        flux_future_destroy (cancel);
        end_journal (dws);
        resume_all (dws);
        return;
    }
    job = find (dws, id);
    json_array_foreach (entries, index, entry) {
        const char *name = json_string_value (json_object_get (entry, "name"));
        if (job && name)
            job->seen |= told_by (name, json_object_get (entry, "context"));
    }
    flux_future_reset (f);
}

/* Have the logs of the jobs read that the plugin has not been with from the beginning. */
static int read_journal (struct dws *dws)
{
    json_t *names;

    if (dws->journal)
        return 0;
    names = json_object ();
    for (size_t i = 0; i < COUNT (events); i++)
        json_object_set_new (names, events[i].name, json_integer (1));
    json_object_set_new (names, RELEASE, json_integer (1));
    dws->journal = flux_rpc_pack (dws->h, "job-manager.events-journal", FLUX_NODEID_ANY,
                                  FLUX_RPC_STREAMING, "{s:o}", "allow", names);
    if (!dws->journal || flux_future_then (dws->journal, -1., journal_read, dws) < 0) {
        flux_log_error (dws->h, "dws: the journal of jobs cannot be read");
        end_journal (dws);
        return -1;
    }
    return 0;
}

/* What the job manager tells */

static void job_destroy (void *arg)
{
    struct job *job = arg;

    if (!job)
        return;
    if (job->dws) {
        withdraw (job);
        TAILQ_REMOVE (&job->dws->jobs, job, all);
    }
    end_limit (job);
    free (job);
}

/* A job is new, or was found when the plugin was loaded, or when Flux was restarted. */
static int job_new (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    struct dws *dws = arg;
    json_int_t id;
    int state;
    json_t *directives = NULL;
    struct job *job;

    (void)topic;
    if (flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:I s:i s:{s:{s?{s?o}}}}",
                                "id", &id,
                                "state", &state,
                                "jobspec", "attributes", "system", "dw", &directives) < 0
        || !directives)
        return 0;
    if (find (dws, id))
        return 0;
    if (!(job = calloc (1, sizeof (*job))))
        return -1;
    job->dws = dws;
    job->id = id;
    job->known = state == FLUX_JOB_STATE_NEW;
    TAILQ_INSERT_TAIL (&dws->jobs, job, all);
    if (flux_jobtap_job_aux_set (p, id, "dws", job, job_destroy) < 0) {
        job_destroy (job);
        return -1;
    }
    if (flux_jobtap_job_subscribe (p, id) < 0)
        return -1;
    return job->known ? 0 : read_journal (dws);
}

/* A state was entered; or, for DEPEND, the job is in it when the plugin is loaded. */
static int state_entered (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    struct job *job = flux_jobtap_job_aux_get (p, FLUX_JOBTAP_CURRENT_JOB, "dws");
    int state;

    (void)topic, (void)arg;
    if (!job || flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:i}", "state", &state) < 0)
        return 0;
    if (!job->known) {
        if (state == FLUX_JOB_STATE_DEPEND)
            return 0; /* whether it was let go already its log will say */
        if (flux_jobtap_job_event_posted (p, job->id, "start") == 1)
            job->seen |= STARTED;
    }
    return step (job, state);
}

static int event_posted (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    struct job *job = flux_jobtap_job_aux_get (p, FLUX_JOBTAP_CURRENT_JOB, "dws");
    const char *name;
    json_t *context = NULL;
    int state, told;

    (void)topic, (void)arg;
    if (!job
        || flux_plugin_arg_unpack (args, FLUX_PLUGIN_ARG_IN, "{s:i s:{s:s s?o}}",
                                   "state", &state,
                                   "entry", "name", &name, "context", &context) < 0)
        return 0;
    told = told_by (name, context);
    job->seen |= told;
    if (strcmp (name, "exception") == 0)
        return excepted (job, context);
    if (strcmp (name, "finish") == 0) {
        job->seen |= STARTED; /* which a log that is not read yet has */
        return step (job, state);
    }
    /* Of others, the log says first whether the end is held already. */
    return job->known && (told & FINISHED) ? step (job, state) : 0;
}

static int query (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    struct dws *dws = arg;
    json_t *told = json_array ();
    struct job *job;
    int rc;

    (void)p, (void)topic;
    TAILQ_FOREACH (job, &dws->jobs, all) {
        json_t *holds = json_array ();

        for (size_t i = CREATE; i <= POST_RUN; i++) {
            if (active (job, requests[i].from, requests[i].to))
                json_array_append_new (holds, json_string (requests[i].exception));
        }
        json_array_append_new (told, json_pack ("{s:I s:o s:s?}",
                                                "id", (json_int_t)job->id,
                                                "holds", holds,
                                                "unanswered", requests[job->asked].topic));
    }
    rc = flux_plugin_arg_pack (args, FLUX_PLUGIN_ARG_OUT, "{s:O s:f s:b}",
                               "jobs", told,
                               "epilog-timeout", dws->epilog_timeout,
                               "conductor-away", dws->away ? 1 : 0);
    json_decref (told);
    return rc;
}

/* The plugin */

static void dws_destroy (void *arg)
{
    struct dws *dws = arg;
    struct job *job;

    /* Jobs may be destroyed after the plugin, or before it: they must not look for it. */
    TAILQ_FOREACH (job, &dws->jobs, all) {
        withdraw (job);
        end_limit (job);
        job->dws = NULL;
    }
    end_journal (dws);
    flux_msglist_destroy (dws->early);
    flux_watcher_destroy (dws->retry);
    free (dws);
}

static void configure (struct dws *dws)
{
    double epilog = 0., retry = 5., answer = 60.;

    if (flux_plugin_get_conf (dws->p)
        && flux_plugin_conf_unpack (dws->p, "{s?F s?F s?F}",
                                    "epilog-timeout", &epilog,
                                    "retry-interval", &retry,
                                    "answer-timeout", &answer) < 0)
        flux_log (dws->h, LOG_ERR,
                  "dws: failed to unpack config: %s. epilog-timeout, retry-interval and "
                  "answer-timeout are numbers of seconds.",
                  flux_plugin_strerror (dws->p));
    dws->epilog_timeout = epilog;
    dws->retry_interval = retry > 0. ? retry : 5.;
    dws->answer_timeout = answer > 0. ? answer : 60.;
    flux_log (dws->h, LOG_INFO, "dws: epilog timeout = %.3fs", dws->epilog_timeout);
}

int flux_plugin_init (flux_plugin_t *p)
{
    struct dws *dws = calloc (1, sizeof (*dws));
    const struct flux_plugin_handler handlers[] = {
        { "job.new", job_new, dws },
        { "job.state.depend", state_entered, dws },
        { "job.state.run", state_entered, dws },
        { "job.state.cleanup", state_entered, dws },
        { "job.event.*", event_posted, dws },
        { "dws.resume", resume, dws },
        { "plugin.query", query, dws },
        { 0 },
    };

    if (!dws)
        return -1;
    dws->p = p;
    dws->h = flux_jobtap_get_flux (p);
    TAILQ_INIT (&dws->jobs);
    TAILQ_INIT (&dws->queue);
    dws->early = flux_msglist_create ();
    dws->retry = flux_timer_watcher_create (flux_get_reactor (dws->h), 1., 1., retry_queue, dws);
    if (!dws->early || !dws->retry || flux_plugin_aux_set (p, NULL, dws, dws_destroy) < 0) {
        dws_destroy (dws);
        return -1;
    }
    configure (dws);
    if (flux_plugin_register (p, "dws", handlers) < 0)
        return -1;
    /* The owner's alone: who may let jobs go may let go any user's. */
    for (size_t i = 0; i < COUNT (services); i++) {
        if (flux_jobtap_service_register_ex (p, services[i].method, FLUX_ROLE_OWNER,
                                             requested, dws) < 0)
            return -1;
    }
    return 0;
}
