/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ack coalescer: jobs of many requests in one call, fired when a
 * connection of the lane is idle.  A (group, partition) has one job in flight
 * at a time, in the order they came.
 */
#ifndef QUEEND_ACK_LANE_H
#define QUEEND_ACK_LANE_H

struct ack_job;
struct acks;
struct ctx;

/*
 * Takes a job whose part_id, group_id, part and group are set.  Its done is
 * called with all items answered, always later.
 */
void ack_lane_add(struct acks *k, struct ack_job *j);

#endif
