/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a plan of twins: which histories of a workload with threads are wanted.
 *
 *     order CASE INDEX...          the case's operations on slots, in the order in which they returned with an effect
 *     twin CASE COUNT INDEX...     the first COUNT of that order, then these, which were pending
 *
 * One line each; a case's order comes before its twins. The engine writes it from the trace.
 */
#include "workload/workload.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct order {
    const struct step **steps; /* null: not read yet */
    uint32_t count;
};

struct plan {
    const char *path;
    const struct workload *workload;
    const struct step **by_index; /* operations by their index; null: not on a slot */
    uint32_t index_count;
    struct order *orders; /* by case */
    uint32_t line, twin_count;
};

static void index_steps(struct plan *plan) {
    const struct workload *workload = plan->workload;
    plan->index_count = workload->steps[workload->step_count - 1].index + 1;
    plan->by_index = allocate_or_fail(NULL, plan->index_count * sizeof *plan->by_index);
    memset(plan->by_index, 0, plan->index_count * sizeof *plan->by_index);
    for (size_t i = 0; i < workload->step_count; i++)
        if (has_slot(workload->steps[i].kind))
            plan->by_index[workload->steps[i].index] = &workload->steps[i];
}

/* The next word as a number below limit. */
static bool take_number(const struct plan *plan, char **rest, uint32_t limit, const char *what, uint32_t *number) {
    char *word = strtok_r(*rest, " \n", rest), *end;
    if (word == NULL)
        return false;
    unsigned long value = strtoul(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end != '\0' || value >= limit)
        fail(EXIT_BAD_INPUT, "%s:%u: %s `%.40s`, expected a number below %u; plan and workload must belong together", plan->path,
             plan->line, what, word, limit);
    *number = (uint32_t)value;
    return true;
}

/* The operations of the case that the rest of the line names, after those that are there. */
static uint32_t take_steps(const struct plan *plan, char *rest, uint32_t case_number, const struct step ***steps, uint32_t count) {
    uint32_t index;
    while (take_number(plan, &rest, plan->index_count, "operation", &index)) {
        const struct step *step = plan->by_index[index];
        if (step == NULL || step->case_number != case_number)
            fail(EXIT_BAD_INPUT, "%s:%u: operation %u is none on a slot of case %u; plan and workload must belong together",
                 plan->path, plan->line, index, case_number);
        *steps = allocate_or_fail(*steps, (count + 1) * sizeof **steps);
        (*steps)[count++] = step;
    }
    return count;
}

/* The heap is closed at the end of the session that the last operation is in, or of the one that created it. */
static void find_sessions(const struct plan *plan, struct planned_twin *twin) {
    for (size_t i = 0; i < plan->workload->step_count; i++) {
        const struct step *step = &plan->workload->steps[i];
        if (step->kind == FL_OP_CREATE && step->case_number == twin->case_number)
            twin->first_session = step->session;
    }
    twin->last_session = twin->first_session;
    for (uint32_t i = 0; i < twin->count; i++)
        if (twin->steps[i]->session > twin->last_session)
            twin->last_session = twin->steps[i]->session;
}

static void read_twin(struct plan *plan, uint32_t case_number, char *rest, void (*run)(const struct planned_twin *twin)) {
    const struct order *order = &plan->orders[case_number];
    struct planned_twin twin = {.number = plan->twin_count++, .case_number = case_number};
    if (!take_number(plan, &rest, order->count + 1, "count", &twin.returned_count))
        fail(EXIT_BAD_INPUT, "%s:%u: expected `twin CASE COUNT INDEX...`", plan->path, plan->line);
    twin.steps = allocate_or_fail(NULL, twin.returned_count * sizeof *twin.steps);
    if (twin.returned_count > 0)
        memcpy(twin.steps, order->steps, twin.returned_count * sizeof *twin.steps);
    twin.count = take_steps(plan, rest, case_number, &twin.steps, twin.returned_count);
    find_sessions(plan, &twin);
    run(&twin);
    free(twin.steps);
}

static void read_line(struct plan *plan, char *line, void (*run)(const struct planned_twin *twin)) {
    char *rest = line, *word = strtok_r(rest, " \n", &rest);
    uint32_t case_number;
    bool is_order = word != NULL && strcmp(word, "order") == 0;
    if (word == NULL || (!is_order && strcmp(word, "twin") != 0) ||
        !take_number(plan, &rest, plan->workload->case_count, "case", &case_number))
        fail(EXIT_BAD_INPUT, "%s:%u: expected `order CASE INDEX...` or `twin CASE COUNT INDEX...`", plan->path, plan->line);
    if (is_order)
        plan->orders[case_number].count = take_steps(plan, rest, case_number, &plan->orders[case_number].steps, 0);
    else
        read_twin(plan, case_number, rest, run);
}

void plan_read(const char *path, const struct workload *workload, void (*run)(const struct planned_twin *twin)) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        fail(EXIT_BAD_INPUT, "%s: plan: %s", path, strerror(errno));
    struct plan plan = {.path = path, .workload = workload};
    plan.orders = allocate_or_fail(NULL, workload->case_count * sizeof *plan.orders);
    memset(plan.orders, 0, workload->case_count * sizeof *plan.orders);
    index_steps(&plan);
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, file) >= 0) {
        plan.line++;
        read_line(&plan, line, run);
    }
    if (ferror(file))
        fail(EXIT_BAD_INPUT, "%s: plan: %s", path, strerror(errno));
    fclose(file);
    free(line);
    for (uint32_t number = 0; number < workload->case_count; number++)
        free(plan.orders[number].steps);
    free(plan.orders);
    free(plan.by_index);
}
