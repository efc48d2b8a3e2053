/* The shell plugin: tells a job's tasks where their storage is.
 *
 * For a job with directives it waits for the `dws_environment` event, which the jobtap
 * plugin posts before the tasks may start. The token of the containers beside the job is in
 * no event, which would be kept: the shell asks the conductor, who tells it to the job's own
 * user alone. The embedded instance has the same in Python
 * (src/warren/wlm/embedded/environment.py).
 */
#define FLUX_SHELL_PLUGIN_NAME "dws_environment"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <flux/core.h>
#include <flux/shell.h>
#include <jansson.h>

#define TOKEN "DW_WORKFLOW_TOKEN"

/* Seconds for which a conductor is waited for that is away. */
static const double token_seconds = 60.;

/* Seconds after which one that has not answered is asked again: it may have ended meanwhile. */
static const double answer_seconds = 10.;

static int set_variables (flux_shell_t *shell, json_t *variables)
{
    const char *name;
    json_t *value;

    if (!json_is_object (variables)) {
        shell_log_error ("the event dws_environment has no variables");
        return -1;
    }
    json_object_foreach (variables, name, value) {
        if (!json_is_string (value)) {
            shell_log_error ("the event dws_environment gives %s no text", name);
            return -1;
        }
        if (flux_shell_setenvf (shell, 1, name, "%s", json_string_value (value)) < 0) {
            shell_log_errno ("%s cannot be set", name);
            return -1;
        }
    }
    return 0;
}

/* Read an entry: return 1 if there is more to read, 0 if all is set, -1 if it cannot be. */
static int read_entry (flux_shell_t *shell, const char *text, bool *has_token)
{
    json_t *entry = json_loads (text, 0, NULL);
    const char *name = json_string_value (json_object_get (entry, "name"));
    int rc = 1;

    if (!name) {
        shell_log_error ("the job's eventlog cannot be read");
        rc = -1;
    }
    else if (strcmp (name, "dws_environment") == 0) {
        json_t *variables = json_object_get (json_object_get (entry, "context"), "variables");

        rc = set_variables (shell, variables);
        *has_token = json_object_get (variables, TOKEN) != NULL;
    }
    else if (strcmp (name, "start") == 0) {
        /* The event comes before the prolog's end: what is not there now does not come. */
        shell_log_error ("the job's storage was never made ready: no dws_environment event");
        rc = -1;
    }
    json_decref (entry);
    return rc;
}

/* Return whether a service is there, and knows no tokens: flux-coral2's puts them into the event. */
static bool knows_no_tokens (flux_future_t *f, int errnum)
{
    return f && errnum == ENOSYS
           && strstr (future_strerror (f, errnum), "Unknown service method");
}

/* Return whether one of some words is in a job's directives, however these are written. */
static bool has_word (const json_t *directives, const char *word, const char *or_word)
{
    char *text = json_dumps (directives, JSON_ENCODE_ANY);
    bool has = text && (strstr (text, word) || (or_word && strstr (text, or_word)));

    free (text);
    return has;
}

static int set_token (flux_shell_t *shell, json_int_t id)
{
    for (double waited = 0.;; waited += 1.) {
        flux_future_t *f = flux_rpc_pack (flux_shell_get_flux (shell), "dws.token",
                                          FLUX_NODEID_ANY, 0, "{s:I}", "id", id);
        const char *token;
        int rc = -1;

        if (f && flux_future_wait_for (f, answer_seconds) == 0
            && flux_rpc_get_unpack (f, "{s:s}", "token", &token) == 0)
            rc = flux_shell_setenvf (shell, 1, TOKEN, "%s", token);
        else if (errno == ENOENT || knows_no_tokens (f, errno))
            rc = 0; /* the job's Workflow has none */
        else if (waited < token_seconds && errno == ETIMEDOUT) {
            rc = 1;
            waited += answer_seconds;
        }
        else if (waited < token_seconds
                 && (errno == ENOSYS || errno == EAGAIN || errno == EHOSTUNREACH))
            rc = 1; /* the conductor, or its API, is away */
        else
            shell_log_error ("no " TOKEN " for the job: %s",
                             f ? future_strerror (f, errno) : strerror (errno));
        flux_future_destroy (f);
        if (rc != 1)
            return rc;
        sleep (1);
    }
}

static int shell_init (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *arg)
{
    flux_shell_t *shell = flux_plugin_get_shell (p);
    json_int_t id;
    json_t *directives = NULL;
    flux_future_t *f;
    const char *text;
    bool has_token = false; /* in the event: one that the user's environment has may be another job's */
    int rc = 1;

    (void)topic, (void)args, (void)arg;
    if (!shell
        || flux_shell_info_unpack (shell, "{s:I s:{s:{s?{s?o}}}}",
                                   "jobid", &id,
                                   "jobspec", "attributes", "system", "dw", &directives) < 0) {
        shell_log_errno ("the jobspec cannot be read");
        return -1;
    }
    if (!directives)
        return 0;
    if (!(f = flux_job_event_watch (flux_shell_get_flux (shell), id, "eventlog", 0))) {
        shell_log_errno ("the job's eventlog cannot be read");
        return -1;
    }
    while (rc == 1) {
        if (flux_job_event_watch_get (f, &text) < 0) {
            if (errno == ENODATA)
                shell_log_error ("the job's storage was never made ready: no dws_environment event");
            else
                shell_log_error ("the job's eventlog cannot be read: %s",
                                 future_strerror (f, errno));
            rc = -1;
            break;
        }
        if ((rc = read_entry (shell, text, &has_token)) == 1)
            flux_future_reset (f);
    }
    if (errno != ENODATA)
        flux_job_event_watch_cancel (f);
    flux_future_destroy (f);
    if (rc != 0 || has_token)
        return rc;
    if (has_word (directives, "user-container-auth", "copy-offload"))
        return set_token (shell, id);
    /* What a preset stands for, the conductor knows: mostly, for no token. */
    if (!has_word (directives, "#DW", NULL) && set_token (shell, id) < 0)
        shell_warn ("the job begins without: its directives are a preset's");
    return 0;
}

int flux_plugin_init (flux_plugin_t *p)
{
    const struct flux_plugin_handler handlers[] = {
        { "shell.init", shell_init, NULL },
        { 0 },
    };

    return flux_plugin_register (p, FLUX_SHELL_PLUGIN_NAME, handlers);
}
