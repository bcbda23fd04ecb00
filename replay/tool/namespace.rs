//! All traces as the autoscalers of one namespace that share a budget: one quantile for all of them against one price for
//! all, which follows from their trade-offs as in the controller.

use std::fmt::{Error, Write as _};
use std::iter::zip;

use foretide_models::auto::{OnlineModel, OnlineSettings, SampleOrigin, ServiceLevel};
use foretide_models::{SharedPrice, TradeOffs};
use foretide_replay::{
    Answer, Bounds, Curve, Means, ReplayConfig, Rule, START_UPS, Score, Trace, Workload, ceilings,
    mean, run,
};
use jiff::SignedDuration;

use crate::Failure;
use crate::candidates::QUANTILES;
use crate::report::number;

/// The budgets: percent of replicas beyond those of the HPA alone.
const BUDGETS: [f64; 8] = [5.0, 10.0, 15.0, 17.5, 20.0, 25.0, 30.0, 40.0];

/// What may be spent in sum when the two are compared.
const COMPARED_AT: f64 = 15.0;

/// Minutes for which a price is kept, as in the controller.
const PRICE_PERIOD: usize = 5;

/// The quantiles that all have, and then the budgets.
const SETTINGS: usize = QUANTILES.len() + BUDGETS.len();

/// What all traces come to at each quantile and with each budget, by start-up.
#[derive(Debug)]
pub(crate) struct SharedBudget(Vec<[Vec<Outcome>; 2]>);

/// What all traces come to at one setting.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Percent of replicas beyond those of the HPA alone, in sum.
    spent: f64,
    replica_hours: f64,
    under: f64,
}

/// One trace.
#[derive(Debug)]
struct Series<'a> {
    workload: Workload<'a>,
    ceilings: Vec<f64>,
    /// Without a price of its own: it measures its skill at the default quantile, as that of `auto` does.
    model: OnlineModel,
    /// At each setting.
    forecasts: Vec<Vec<Option<Bounds>>>,
}

// === impl SharedBudget ===

impl SharedBudget {
    pub(crate) fn measure(
        traces: &[Trace],
        rule: Rule,
        progress: &dyn Fn(&str),
    ) -> Result<Self, Failure> {
        let of = |start_up| {
            progress(&format!("start-up {start_up} min"));
            outcomes(traces, ReplayConfig { start_up, rule })
        };
        let each = START_UPS.into_iter().map(of);
        Ok(Self(each.collect::<Result<_, _>>()?))
    }

    /// Both at equal sums of replicas and at equal replica-hours, and what each budget comes to.
    pub(crate) fn table(&self, replica_hours: f64) -> Result<String, Error> {
        let mut text = format!(
            "\n**All traces as one namespace with a budget: minutes short (U, %); start-up {} min**\n\n\
             | | one quantile for all | one price for all |\n|---|---|---|\n",
            START_UPS.map(|start_up| start_up.to_string()).join(" / "),
        );
        let in_sum = format!("{COMPARED_AT} % more replicas in sum than the HPA alone");
        let in_hours = format!("replica-hours of {replica_hours:.3}");
        for (name, cost, of) in [
            (
                in_sum,
                COMPARED_AT,
                (|one| one.spent) as fn(&Outcome) -> f64,
            ),
            (in_hours, replica_hours, |one| one.replica_hours),
        ] {
            let under = |outcomes: &[Outcome]| {
                let points = outcomes.iter().map(|one| (of(one), one.under));
                number(Curve::through(points).at(cost), 3)
            };
            let quantile = self.cell(|quantiles, _| under(quantiles));
            let price = self.cell(|_, budgets| under(budgets));
            writeln!(text, "| {name} | {quantile} | {price} |")?;
        }
        text += "\n| budget % | spent in sum % | RH | U % |\n|---|---|---|---|\n";
        for (i, budget) in BUDGETS.into_iter().enumerate() {
            let column = |of: fn(&Outcome) -> f64, decimals| {
                self.cell(|_, budgets| number(budgets.get(i).map(of), decimals))
            };
            let spent = column(|one| one.spent, 1);
            let hours = column(|one| one.replica_hours, 3);
            let under = column(|one| one.under, 2);
            writeln!(text, "| {budget} | {spent} | {hours} | {under} |")?;
        }
        Ok(text)
    }

    /// One text for each start-up, of what the quantiles and the budgets come to.
    fn cell(&self, of: impl Fn(&[Outcome], &[Outcome]) -> String) -> String {
        let each = self
            .0
            .iter()
            .map(|[quantiles, budgets]| of(quantiles, budgets));
        each.collect::<Vec<_>>().join(" / ")
    }
}

/// What the traces come to at each quantile and with each budget; nothing without traces.
fn outcomes(traces: &[Trace], config: ReplayConfig) -> Result<[Vec<Outcome>; 2], Failure> {
    let series = traces
        .iter()
        .map(|trace| Series::new(trace, config.start_up));
    let mut namespace = series.collect::<Result<Vec<_>, _>>()?;
    forecast(&mut namespace);
    let of = |setting| outcome(&namespace, setting, config);
    let quantiles = (0..QUANTILES.len()).map_while(of).collect();
    let budgets = (QUANTILES.len()..SETTINGS).map_while(of).collect();
    Ok([quantiles, budgets])
}

/// Replays the forecasters of all traces together, which begin in the same minute.
fn forecast(namespace: &mut [Series<'_>]) {
    let minutes = namespace.iter().map(|series| series.ceilings.len()).max();
    let mut prices = [None; BUDGETS.len()];
    for minute in 0..minutes.unwrap_or(0) {
        let learned = namespace.iter_mut().map(|series| series.learn(minute));
        let trade_offs: Vec<Option<TradeOffs>> = learned.collect();
        if minute.is_multiple_of(PRICE_PERIOD) {
            let measured = || trade_offs.iter().flatten();
            prices = BUDGETS.map(|percent| SharedPrice::within(percent, measured()));
        }
        for (series, trade_offs) in zip(&mut *namespace, &trade_offs) {
            series.forecast(minute, trade_offs.as_ref(), &prices);
        }
    }
}

fn outcome(namespace: &[Series<'_>], setting: usize, config: ReplayConfig) -> Option<Outcome> {
    let (mut pairs, mut replicas, mut alone) = (Vec::new(), 0.0, 0.0);
    for series in namespace {
        let own = series.replay(series.forecasts.get(setting)?, config);
        let plain = series.replay(&[], config);
        pairs.push((own.0, plain.0));
        replicas += own.1;
        alone += plain.1;
    }
    let means = Means::of(&pairs)?;
    Some(Outcome {
        spent: 100.0 * (replicas / alone - 1.0),
        replica_hours: means.replicas,
        under: means.under,
    })
}

// === impl Series ===

impl<'a> Series<'a> {
    /// A trace of which the minutes before the run are learned.
    fn new(trace: &'a Trace, start_up: usize) -> Result<Self, Failure> {
        let workload = Workload::new(&trace.demand)?;
        let settings = OnlineSettings::new(i64::try_from(start_up)?);
        let service_level = ServiceLevel::Priced {
            price: None,
            per_replica: Some(workload.target()),
        };
        let mut model = OnlineModel::new(settings, SignedDuration::from_mins(1), service_level);
        for &demand in workload.demand().iter().take(workload.first() - 1) {
            model.take(demand, SampleOrigin::Measured { raw: true });
        }
        Ok(Self {
            workload,
            ceilings: ceilings(&workload),
            model,
            forecasts: vec![Vec::new(); SETTINGS],
        })
    }

    /// Learns what is known at this minute of the run; `None` after its end, and while nothing is measured.
    fn learn(&mut self, minute: usize) -> Option<TradeOffs> {
        self.ceilings.get(minute)?;
        let newest = self.workload.first() + minute - 1;
        let demand = *self.workload.demand().get(newest)?;
        self.model
            .take(demand, SampleOrigin::Measured { raw: true });
        self.model.calibrate();
        self.model.trade_offs()
    }

    /// The forecasts of this minute, at each quantile and at each price.
    fn forecast(
        &mut self,
        minute: usize,
        trade_offs: Option<&TradeOffs>,
        prices: &[Option<SharedPrice>],
    ) {
        let Some(&ceiling) = self.ceilings.get(minute) else {
            return;
        };
        let taken = |shared: &Option<SharedPrice>| {
            let known = trade_offs.zip(*shared);
            let chosen = known.and_then(|(own, shared)| own.at_price(shared.price));
            chosen.unwrap_or_else(|| self.model.quantile())
        };
        let at_prices = prices.iter().map(taken);
        let quantiles = QUANTILES.iter().copied().chain(at_prices);
        for (forecast, quantile) in zip(&mut self.forecasts, quantiles) {
            let bounds = self.model.bounds(quantile);
            forecast.push(bounds.map(|bounds| Answer::from(bounds).limited(ceiling).bounds));
        }
    }

    /// The score with a forecast, and the mean count.
    fn replay(&self, forecast: &[Option<Bounds>], config: ReplayConfig) -> (Score, f64) {
        let run = run(&self.workload, config, forecast);
        let counts = self.workload.counted(&run.asked);
        let replicas = mean(counts.iter().copied().map(f64::from));
        (Score::of(&self.workload, &run), replicas.unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use foretide_replay::{AutoCandidate, History, forecasts, synthetic_traces};

    use super::*;

    const CONFIG: ReplayConfig = ReplayConfig {
        start_up: 2,
        rule: Rule::ALL[3],
    };

    #[test]
    fn at_the_same_sum_one_price_leaves_fewer_minutes_short_than_one_quantile() {
        let [quantiles, budgets] = outcomes(&synthetic_traces(), CONFIG).unwrap();
        let one_quantile = Curve::through(quantiles.iter().map(|one| (one.spent, one.under)));
        let compared = budgets
            .iter()
            .filter_map(|one| Some((one, one_quantile.at(one.spent)?)));
        let compared: Vec<_> = compared.collect();
        assert!(compared.len() > 4, "{budgets:?}");
        for (one, under) in compared {
            assert!(
                one.under < 0.75 * under,
                "{one:?}, expected less than {under}"
            );
        }
    }

    #[test]
    fn a_quantile_comes_to_what_auto_comes_to_at_it() {
        let trace = synthetic_traces().swap_remove(1);
        let workload = Workload::new(&trace.demand).unwrap();
        let history = History::new(&trace.demand, 1);
        let mut auto = AutoCandidate::quantiles(QUANTILES, CONFIG.start_up);
        let [quantiles, _] = outcomes(std::slice::from_ref(&trace), CONFIG).unwrap();
        let alone = Score::of(&workload, &run(&workload, CONFIG, &[]));
        let paths = forecasts(&mut auto, &workload, &history);
        assert_eq!(quantiles.len(), paths.len());
        for (one, path) in zip(quantiles, paths) {
            let score = Score::of(&workload, &run(&workload, CONFIG, &path.bounds()));
            let means = Means::of(&[(score, alone)]).unwrap();
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            let is_same = close(one.replica_hours, means.replicas) && close(one.under, means.under);
            assert!(is_same, "{}: {one:?}, expected {means:?}", path.setting);
        }
    }
}
