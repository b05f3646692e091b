/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "out.h"

int
cmd_message_list(struct ctl *c, const struct cmd_call *a)
{
	const char *status = cmd_str(a, "status");
	struct buf path = BUF_ZERO;
	int code;

	if (status && !cmd_is_word("pending processing completed failed "
				   "dead_letter",
			      status))
		return ctl_fail(CTL_USER,
			"--status \"%s\": expected pending, "
			"processing, completed or failed",
			status);
	cmd_get_path(a, &path);
	/* a message fails for good by becoming a dead letter */
	if (status)
		client_query(&path, "status",
			strcmp(status, "failed") == 0 ? "dead_letter" : status);
	if ((code = cmd_get_time(a, "from", &path)) != 0 ||
		(code = cmd_get_time(a, "to", &path)) != 0) {
		buf_fini(&path);
		return code;
	}
	return cmd_get_print(c, &path, a->phrase->view);
}

int
cmd_message_delete(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "DELETE", .kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int code;

	if (!cmd_confirmed(a, "delete"))
		return CTL_USER;
	cmd_get_path(a, &path);
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "deleted");
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}
