/* SPDX-License-Identifier: Apache-2.0 */
/* What a dashboard asks about its user; logins are the business of a proxy. */
#ifndef QUEEND_IDENTITY_H
#define QUEEND_IDENTITY_H

struct hsrv_req;

void identity_me(struct hsrv_req *r);
void identity_login(struct hsrv_req *r);
void identity_logout(struct hsrv_req *r);

#endif
