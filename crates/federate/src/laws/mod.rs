//! The laws of a fleet, over single decisions and over a simulation of the whole control loop.
//!
//! Every test draws its fleets from a seeded generator; a failure names the seed. The members of `single_decisions`
//! report random states. `convergence` runs a simulation with autoscalers, nodes, start-up times and an hour of faults,
//! then an hour of constant input; in `false_reports` one of its members then reports random states. What was added
//! after the seeds (demand weights, Duplicated, clusters that take no part, scale-down behavior, pods that become not
//! ready) is a variant of a seed and not drawn, so that every seed keeps its fleet.
//!
//! In the table lo and hi are the limits of a member, C is `convergence`, S is `single_decisions`, F is
//! `false_reports`.
//!
//! | law | says | tested |
//! |---|---|---|
//! | P1 | `1 <= min <= max <= hi` for every member with a budget | S, C |
//! | P2 | maximums and unassigned budget add up to `max(MAX, sum lo)`; with lost members, to what those leave | S, C |
//! | P3 | minimums add up to at least MIN, as far as maximums allow; a lost member counts with its minimum | S, C |
//! | P4 | and to at most `max(MIN, sum lo)` and one for each that was raised to one | S, C |
//! | P5 | the order of members does not matter | S |
//! | P6, P7, P8, P11 to P14 | laws of one division | `division_laws` |
//! | P9 | only R3 and R9 take a maximum below what is placed | S |
//! | P10 | R5 to R10 keep the sums of maximums with unassigned budget and of minimums, sleepers' aside | S, C |
//! | P15 | a member that is not observed is not written | S, C |
//! | P16 | repeated on its own result, a decision changes nothing, unless the result changes its input | S, C |
//! | X1 | under constant input nothing moves in the end | C |
//! | X2 | no floor is above a known capacity | C |
//! | X3 | demand is served where capacity and MAX allow | C |
//! | X4 | the floor is met where capacity allows | C |
//! | X5 | no member starves at its maximum while others have unused budget | C |
//! | X6 | a maximum is never below the lower limit | S, C |
//! | X7 | except under Duplicated, no ready pod that demand, MIN or the floor needs ends before others are ready | C |
//! | X8 | a fleet that needs fewer replicas shrinks from its lowest priority | `examples`, C |
//! | X9 | after any prefix of the writes, maximums sum to no more than before or after, the last writes aside | S |
//! | X10 | the report of one member takes nothing that another runs, and puts none below its minimum | S, C, F |
//! | X10 | R6 and R9 move at most the upper limit of one member for it, R7 one replica | S, C, F |
//! | X11 | under constant demand the count never rises above what demand, floor and minimum need | `participation`, C |
//! | X12 | no ready pod ends sooner than under the reference autoscaler with the same `behavior` | `scale_down`, C |
//!
//! Some retries under constant input are intended and not counted as moves: a capacity that proved wrong, local demand,
//! and sleep that was too early, each at times that double.

mod convergence;
mod examples;
mod false_reports;
mod fixtures;
mod membership;
mod moves;
mod participation;
mod ready_pods;
mod reference;
mod reference_limits;
mod rules;
mod scale_down;
mod scenario;
mod simulation;
mod single_decisions;
