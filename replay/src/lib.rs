//! Minutes short at equal replica-hours.
//!
//! A benchmark of demand forecasters. It replays recorded demand, minute by minute, against a horizontal autoscaler with
//! and without a forecast, and answers: **for the same money, in how many minutes were there too few replicas?** Every
//! forecaster is replayed at several settings (quantiles or margins). The baseline is the Kubernetes HPA with a lowered
//! target.
//!
//! ```sh
//! cargo run --release -p foretide-replay -- FOLDER --synthetic              # a first try: writes three synthetic traces, replays them
//! cargo run --release -p foretide-replay -- FOLDER                          # your own traces, or the public ones (below)
//! cargo run --release -p foretide-replay -- FOLDER --contender mine.csv     # your own forecasts beside the built-in candidates
//! ```
//!
//! Tables go to standard output, in Markdown. The twenty public traces take a minute and a half on two cores.
//! `MEASURED.md` has what this tool prints for Foretide's own forecaster.
//!
//! ## Rules
//!
//! **Demand.** `D[t]` is the mean demand of the whole workload in minute `t`. The target of one replica is
//! `T = mean(D over the counted minutes) / 10`. At the start of minute `t`, everything before it is known.
//!
//! **What counts.** Counting begins after seven days; in traces shorter than ten and a half days, the last four days count.
//! A run begins 30 minutes before, with `ceil(D / T)` replicas.
//!
//! **Observed proposal**, the rule of the HPA, with `cur` the current replicas: `cur` if `|D[t-1] / (cur T) - 1| <= 0.1`,
//! else `ceil(D[t-1] / T - 1e-9)`.
//!
//! **Forecast proposal.** A forecast for minute `t` is two numbers, `raise <= hold` (of one number, both): with fewer
//! replicas than for `raise`, more are asked for; with more than for `hold`, some are given back. `need` is the demand to
//! provide for:
//!
//! | `--rule` | `need` | stays while | else |
//! |---|---|---|---|
//! | `hpa` | `min(max(need[t-1], raise), hold)` | `-0.10 <= need / (cur T) - 1 <= 0.10` | `ceil(need / T - 1e-9)` |
//! | `hpa-last` | `min(max(last T, raise), hold)` | the same, with `last` for `cur` | the same |
//! | `band` | as for `hpa` | `-0.05 <= need / (cur T) - 1 <= 0.10` | `ceil(0.95 need / T - 1e-9)` |
//! | `band-last` (default) | as for `hpa-last` | the same, with `last` for `cur` | the same |
//!
//! `last` is the forecast's own last proposal. Without `need[t-1]` or `last`, `need` is `hold`. A minute without a forecast
//! has no proposal and clears both. No forecast may exceed 1.5 times the highest demand of the minutes before; what does is
//! lowered to that. Both ends of the bands of `band` and `band-last` are 1e-9 further out than the table says, for
//! rounding.
//!
//! `band-last` is what Foretide does. The baseline `hpa` (the last minute, raised by a margin) always has the rule of the
//! HPA.
//!
//! **Count.** The higher proposal wins, within 1 and 100,000. If it is above `cur`, it is asked for at once. If it is
//! below, `cur` falls to the highest of the last five minutes' results, this minute included.
//!
//! **Start-up.** A replica that is asked for in minute `t` serves from minute `t + S` on: `ready[t] = min(asked[t-S..=t])`,
//! for `S` = 2 (pull, boot, readiness), 5 (with a new node) and 10 (slow starts). A replica that is given back is gone at
//! once.
//!
//! **History.** With `--history 3m` (or `5m`), forecasters know the mean of the last three (five) minutes, as of
//! `rate(...[3m])`; minutes are what counts. `--history 1m,3m` compares both.
//!
//! Simplifications: a step of 60 s, where the HPA decides every 15 s; no limit on the speed of growth; a metric that does
//! not saturate; demand that does not depend on the count.
//!
//! ## Scores
//!
//! Over the counted minutes of a trace:
//!
//! | | |
//! |---|---|
//! | short, `U`, `under` | percent of minutes with `D > 1.1 ready T`: past the HPA's own tolerance |
//! | `unmet` | `100 sum (D - 1.1 ready T)+ / sum D` |
//! | overload, `O`, `over` | percent of minutes with `D > ready T / 0.7`: past the capacity of replicas whose target is 70 % |
//! | `unmet_hard` | `100 sum (D - ready T / 0.7)+ / sum D` |
//! | replica-hours, `rh` | `sum asked / sum max(1, ceil(D / T))`; in tables, RH is relative to the HPA alone on the same trace |
//! | changes, `actions` | changes of the count a day |
//! | cost, `j` | `(sum (asked - D/T)+ + 20 sum (D/(1.1 T) - ready)+) / sum D/T`; in tables, gJ is `(j + .01) / (j of the HPA alone + .01)` |
//!
//! Over a set of traces, RH and gJ are geometric means, all others arithmetic.
//!
//! **Equal cost.** Each setting is a point: its RH and its U over all traces. U at an RH lies on the straight line between
//! the two neighboring points; outside of the points there is none. The tables give U at 1.10, 1.15, 1.20, and at
//! `--replica-hours` (1.186: what the forecasts of crane's DSP cost on the public traces).
//!
//! **Beside the score**, of the highest demand in the decision window `t..=t+S+3` (`auto`: its own): coverage, pinball
//! losses and mean absolute error.
//!
//! ## Enter a contender of your own
//!
//! One line for each minute and setting:
//!
//! ```text
//! trace,minute,setting,forecast            trace,start_up,minute,setting,raise,hold
//! crane_00,7170,q=0.9,62.1                 crane_00,2,7170,q=0.9,61.2,63.5
//! crane_00,7171,q=0.9,62.4                 crane_00,5,7170,q=0.9,61.2,66.0
//! ```
//!
//! | column | |
//! |---|---|
//! | `trace` | a name of `index.csv` |
//! | `minute` | `t`, counted from 0 at the first line of the trace: the forecast that is known when minute `t` begins. **It may depend on minutes before `t` only** |
//! | `setting` | any text: a quantile, a margin. A comparison at equal cost needs several |
//! | `forecast`, or `raise` and `hold` | the demand to provide for, in the unit of the trace; finite, at least zero |
//! | `start_up` (optional) | 2, 5 or 10. Without the column, a line is for all of them |
//! | `peak` (optional) | the value that the decision window is promised to stay within; without it, `hold` |
//!
//! In a minute without a line the HPA runs alone. The first minute that is used is 30 minutes before the counted ones.
//! Settings whose names begin with `q=` are taken as quantiles: their coverage is judged. The name of the contender is that
//! of the file.
//!
//! `--export CANDIDATE FILE` writes the forecasts of a built-in candidate in this format, such as
//! `--export auto auto.csv --trace crane_00`. A file of all traces has about ten million lines.
//!
//! In Rust, implement `Candidate`, and add it to `tool/candidates.rs`; or use the library:
//!
//! ```rust
//! use foretide_replay::{Bounds, ReplayConfig, Rule, Score, Workload, run};
//!
//! // Eight days of a service that is busy from noon to one.
//! let demand: Vec<f64> = (0..8 * 1440)
//!     .map(|minute| if (720..780).contains(&(minute % 1440)) { 300.0 } else { 100.0 })
//!     .collect();
//! let workload = Workload::new(&demand)?;
//! let config = ReplayConfig { start_up: 2, rule: Rule::HPA };
//!
//! // Without a forecast, the autoscaler reacts when noon has come, and its replicas start too late.
//! let alone = run(&workload, config, &[]);
//! // A forecast of the next five minutes, here yesterday's demand, starts them in time.
//! let yesterday: Vec<_> = (workload.first()..demand.len())
//!     .map(|t| demand[t - 1440..t - 1435].iter().copied().fold(0.0, f64::max))
//!     .map(|highest| Some(Bounds::both(highest)))
//!     .collect();
//! let with_forecast = run(&workload, config, &yesterday);
//!
//! let (alone, with_forecast) = (Score::of(&workload, &alone), Score::of(&workload, &with_forecast));
//! assert!(alone.under > 0.0 && with_forecast.under == 0.0);
//! assert!(with_forecast.replicas > alone.replicas);
//! # Ok::<(), foretide_replay::WorkloadError>(())
//! ```
//!
//! ## Built-in candidates
//!
//! | | |
//! |---|---|
//! | `hpa` | the last minute; with a margin, the HPA with a lowered target |
//! | `snaive-day`, `snaive-week` | the same window yesterday, a week ago |
//! | `snaive-day*level` | yesterday's window, scaled to the level of the last 15 minutes |
//! | `median-7d`, `max-7d` | median and maximum of the same window on the last seven days |
//! | `persist+conformal` | the level of the last five minutes, raised by the quantile of its own past errors |
//! | `dsp-W60` | Foretide's `dsp`, used as crane uses its own: refitted every 12 hours, maximum of the next hour |
//! | `auto` | Foretide's forecaster, at quantiles. Its coverage is that of the product at `q=0.94` only, the default |
//! | `auto, objective` | the same, configured for a percentage of minutes short |
//! | `auto (golden)` | its first version, with the settings of the golden file of the study |
//!
//! With `--more` also `seasonalNaive` and `dsp`, calibrated, cold starts, faults, single values ahead, and all traces
//! together as autoscalers that share a [budget](../docs/forecasting.md#one-budget-for-a-namespace), compared with one
//! quantile for all at the same sum of replicas and at the same replica-hours.
//!
//! ## Traces
//!
//! `FOLDER` has an `index.csv` with the columns `name`, `klass` (the kind of load: tables are by it) and, optionally,
//! `what` (a few words for pictures) and `native_s` (seconds between two measurements, if coarser data were interpolated).
//! For each name it has a `<name>.csv` with lines of `timestamp,value`: one a minute, seconds since 1970 or
//! `2026-01-31T12:00:00Z`, at least five days, such as a range query of the total of a metric with a step of 60 s. Missing,
//! empty and `NaN` values are filled: up to five minutes with the value before, longer gaps with the day before.
//!
//! The twenty public traces are not ours, and not in this repository. To prepare them, take the named columns and time,
//! read local times as UTC, interpolate coarser data linearly to minutes that begin with the first line, and round to six
//! significant digits:
//!
//! | name (`klass`) | file | take | license |
//! |---|---|---|---|
//! | `crane_00`, `crane_09` (smooth), `crane_02`, `crane_10`, `crane_12` (spiky), `crane_04`, `crane_05`, `crane_07` (shift) | [gocrane/crane](https://github.com/gocrane/crane) `pkg/prediction/dsp/test_data/input{0,9,2,10,12,4,5,7}.csv` | `ts,value`, all | Apache-2.0 |
//! | `ms_ingress_01`, `ms_ingress_04` (smooth) | [microsoft/cloud-monitoring-dataset](https://github.com/microsoft/cloud-monitoring-dataset) `data/data-ingress-rate/ingress-{01,04}.csv` | `TimeStamp,Value`, 2018-04-25 to 2018-05-05 | MIT |
//! | `ms_mongo_01` (smooth), `ms_mongo_03` (shift) | the same, `data/mongodb-application-rps/mongo-{01,03}.csv` | 2018-04-25 to 2018-05-05 | MIT |
//! | `ms_machine_01` (smooth) | the same, `data/mongodb-machine-rps/machine-01.csv` | 2018-06-13 to 2018-06-26 | MIT |
//! | `nab_asg_cpu` (spiky), `nab_nyc_taxi` (smooth) | [numenta/NAB](https://github.com/numenta/NAB) `data/realKnownCause/cpu_utilization_asg_misconfiguration.csv`, `nyc_taxi.csv` | `timestamp,value`, 2014-05-20 00:04 to 2014-06-09 23:59; 2014-10-13 to 2014-11-09 | MIT |
//! | `nab_elb_req` (noisy), `nab_rds_cc0c` (shift) | the same, `data/realAWSCloudwatch/elb_request_count_8c0756.csv`, `rds_cpu_utilization_cc0c53.csv` | all | MIT |
//! | `nab_tweets_goog` (noisy) | the same, `data/realTweets/Twitter_volume_GOOG.csv` | 2015-03-01 00:02 to 2015-03-21 23:57 | MIT |
//! | `wc98_jun` (shift) | [nimamahmoudi/worldcup98-dataset](https://github.com/nimamahmoudi/worldcup98-dataset) `invocation_count.csv`: the requests of the Football World Cup of 1998, of the Internet Traffic Archive | `period,count`, 1998-06-08 to 1998-06-28 | MIT |
//! | `nasa_jul` (noisy) | [PasanBhanu/time-series-forcasting-with-facebook-prophet-lstm-hybrid-model](https://github.com/PasanBhanu/time-series-forcasting-with-facebook-prophet-lstm-hybrid-model) `datasets/nasa.csv`: the requests of the Kennedy Space Center, of the same archive | 1995-07-01 to 1995-07-21 | CC-BY-4.0 |
//!
//! Days are whole, both included. The five NAB traces are measured every 5 minutes, the taxi every 30; the others every
//! minute. Interpolated data have no bursts, which favors the HPA.
//!
//! ## Golden files
//!
//! `--csv FILE` writes a row for each trace, start-up, rule and setting; `--before FILE` takes such rows and shows `auto`
//! as it was beside what it is. `--golden DIR` compares with `DIR/sim_open.csv` and prints the largest deviation of each
//! column: `name,S,method,under,unmet,over,unmet_hard,rh,actions,j`, by the rule `hpa` (a file of `--csv` has `history`, in
//! minutes, and `rule` after `S`). A method is a candidate and its setting: `hpa`, `hpa+10%`, `auto q=0.9`. Rows of
//! `crane15-W60`, another implementation of crane's DSP, are the baseline "crane" of the tables; `DIR/auto_<trace>.csv`
//! (`t,y_prev,c,L5,p,F50,F80,F90,F95`) are inner values of the first version of `auto`.
//!
//! `cargo test -p foretide-replay` compares the scores of the synthetic traces ([formula](src/synthetic.rs)) with
//! [tests/data/golden.csv](tests/data/golden.csv); `UPDATE=1` rewrites the file.

mod accuracy;
mod auto;
mod autoscaler;
mod average;
mod candidate;
mod contender;
mod csv;
mod history;
mod naive;
mod persistence;
mod refitted;
mod score;
mod summary;
mod synthetic;
mod traces;
mod workload;

pub use accuracy::Accuracy;
pub use auto::AutoCandidate;
pub use autoscaler::{Count, Reference, ReplayConfig, Rule, Run, TOLERANCE, UnknownRule, run};
pub use average::{geometric_mean, mean, median};
pub use candidate::{
    Answer, BEYOND, Candidate, CandidateForecast, MARGINS, Tuning, ceilings, forecasts,
};
pub use contender::{Contender, write_forecasts, write_heading};
pub use csv::{FileError, fields, read};
pub use history::{History, Known};
pub use naive::NaiveCandidate;
pub use persistence::CalibratedPersistence;
pub use refitted::RefittedCandidate;
pub use score::Score;
pub use summary::{Curve, Means};
pub use synthetic::synthetic_traces;
pub use traces::Trace;
pub use workload::{Workload, WorkloadError};

/// The demand that a forecast wants replicas for, in one minute. A forecast of one number has it in both.
pub use foretide_models::DemandBounds as Bounds;

/// Minutes that a replica takes to start, for each of which everything is replayed.
pub const START_UPS: [usize; 3] = [2, 5, 10];

/// Minutes in a day.
pub const DAY: usize = 1440;
