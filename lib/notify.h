/* SPDX-License-Identifier: Apache-2.0 */
/* sd_notify(3) without the library; all calls do nothing without systemd. */
#ifndef QUEEN_NOTIFY_H
#define QUEEN_NOTIFY_H

#include <stdint.h>

void notify_ready(void);
void notify_stopping(void);
void notify_alive(void);		/* WATCHDOG=1 */
int64_t notify_watchdog_ms(void);	/* half of WATCHDOG_USEC; 0 = none */

#endif
