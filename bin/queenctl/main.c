/* SPDX-License-Identifier: Apache-2.0 */
/* queenctl: everything a person or a cron job does with a cell. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "client.h"
#include "cmd.h"
#include "ctl.h"
#include "version.h"

/* Tables count columns: they need a locale that knows UTF-8. */
static void
choose_locale(void)
{
	if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
		setlocale(LC_CTYPE, "C.UTF-8");
}

static int
take_globals(struct ctl *c, const struct cmd_call *a)
{
	c->ask = (struct context_ask){
		.config = cmd_global(a, "config")->text,
		.context = cmd_global(a, "context")->text,
		.server = cmd_global(a, "server")->text,
		.token = cmd_global(a, "token")->text,
		.tenant = cmd_global(a, "tenant")->text,
		.insecure = cmd_global(a, "insecure")->truth,
	};
	c->output = cmd_global(a, "output")->text;
	c->quiet = cmd_global(a, "quiet")->truth;
	c->no_headers = cmd_global(a, "no-headers")->truth;
	if (cmd_global(a, "no-color")->truth)
		c->color = CTL_COLOR_OFF;
	else if (cmd_global(a, "color")->truth)
		c->color = CTL_COLOR_ON;
	return ctl_set_format(c);
}

static int
show_help(const struct cmd_call *a)
{
	struct buf b = BUF_ZERO;

	cmd_help(a, &b);
	fwrite(b.p, 1, b.len, stdout);
	buf_fini(&b);
	return CTL_OK;
}

int
main(int argc, char **argv)
{
	struct ctl c = { .format = CTL_TABLE };
	struct cmd_call call;
	struct err e = ERR_ZERO;
	int code;

	choose_locale();
	if (cmd_parse(argc - 1, argv + 1, &call, &e) != 0) {
		code = ctl_fail(CTL_USER, "%s", e.text);
	} else if (call.help) {
		code = show_help(&call);
	} else if (cmd_global(&call, "version")->truth) {
		printf("%s\n", version_line());
		code = CTL_OK;
	} else {
		code = take_globals(&c, &call);
		if (code == 0)
			code = call.phrase->run(&c, &call);
	}
	code = ctl_flush(code);
	ctl_fini(&c);
	/* tail ends well by a signal, everything else dies of it */
	if (code != CTL_OK)
		client_die_of_signal();
	return code;
}
