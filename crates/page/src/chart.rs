//! The chart of recorded minutes: demand with its expectation, and replicas in steps, on one time axis.

use std::iter;

use foretide_chart::{
    Band, Bar, Bars, Calendar, Chart, Layer, Mark, Panel, Point, Role, Shortage, Unit, Window,
};
use foretide_domain::{cron::Zone, proposal::Source, sim::TOLERATED, words::grouped};
use jiff::Timestamp;

use super::{
    Page, ViewError, Visible,
    api::{
        CalendarWindow, ChartQuery, ClusterShare, ClustersView, HistoryView, ObjectKey, Span,
        WindowSpan,
    },
    at,
};

/// Default and allowed widths of a picture, in pixels.
const WIDTH: u32 = 860;
const WIDTHS: std::ops::RangeInclusive<u32> = 280..=2000;

/// The width that a query asks for, in pixels.
pub fn width(asked: Option<u32>) -> Result<u32, ViewError> {
    let width = asked.unwrap_or(WIDTH);
    if WIDTHS.contains(&width) {
        return Ok(width);
    }
    let message = format!("width: expected 280 to 2000 pixels, got {width}");
    Err(ViewError::BadQuery(message))
}

/// The zone that a query asks for.
pub fn zone(name: Option<&str>) -> Result<Zone, ViewError> {
    let utc = Zone::utc();
    match name {
        None | Some("") => Ok(utc),
        Some(name) => {
            Zone::parse(name, &utc).map_err(|error| ViewError::BadQuery(format!("zone: {error}")))
        }
    }
}

/// The chart of a span.
pub fn svg(
    key: &ObjectKey,
    view: &HistoryView,
    span: Span,
    query: &ChartQuery,
    now: Timestamp,
) -> Result<String, ViewError> {
    let panels = [demand(view), replicas(view)];
    // Parsed before layers without values are removed: a query may name those of an empty span.
    let wanted = wanted(query, &panels)?;
    let windows = view.windows.iter();
    let shaded: Vec<_> = windows.map(|it| window(it.name.clone(), it.span)).collect();
    let panels = panels.map(|mut panel| {
        panel.layers.retain(|layer| {
            let is_wanted = wanted.as_ref().is_none_or(|ids| ids.contains(&&*layer.id));
            is_wanted && layer.mark.has_values()
        });
        panel.windows.clone_from(&shaded);
        panel
    });
    let chart = Chart {
        description: described(key, view),
        span: (at(span.from), at(span.until)),
        now: Some(now),
        zone: zone(query.zone.as_deref())?.rules().clone(),
        width: width(query.width)?,
        panels: panels.into(),
        ..Chart::default()
    };
    Ok(chart.draw().fragment())
}

fn window(name: String, span: Span) -> Window {
    Window {
        name,
        from: at(span.from),
        until: at(span.until),
    }
}

/// The layers that a query asks for, if it does not ask for all.
fn wanted<'a>(query: &'a ChartQuery, panels: &[Panel]) -> Result<Option<Vec<&'a str>>, ViewError> {
    let Some(asked) = &query.layers else {
        return Ok(None);
    };
    let layers = panels.iter().flat_map(|panel| &panel.layers);
    let known: Vec<_> = layers.map(|layer| &*layer.id).collect();
    let asked: Vec<_> = asked.split(',').filter(|id| !id.is_empty()).collect();
    match asked.iter().find(|id| !known.contains(id)) {
        None => Ok(Some(asked)),
        Some(unknown) => Err(ViewError::BadQuery(format!(
            "layers: expected some of {}, separated by commas, got {unknown:?}",
            known.join(", ")
        ))),
    }
}

/// Past demand with its past expectation, and the forecast.
fn demand(view: &HistoryView) -> Panel {
    let ahead: Vec<_> = view.ahead.expected.iter().copied().map(Some).collect();
    let mut range = bands(&view.times, &view.expected, &view.expected_upper);
    range.extend(bands(&view.ahead.times, &ahead, &view.ahead.upper));
    Panel {
        id: "demand".to_owned(),
        name: "Demand".to_owned(),
        note: "in the replicas that it needs".to_owned(),
        unit: Unit::Replicas,
        layers: vec![
            Layer::new(
                "band",
                "range of the forecast",
                Role::Forecast,
                Mark::Band(range),
            ),
            Layer::new(
                "needed",
                "needed by the demand",
                Role::Observed,
                Mark::Area(points(&view.times, view.needed.iter().copied())),
            ),
            Layer::new(
                "expected",
                "forecast, made a lead time before",
                Role::Forecast,
                Mark::Line(points(&view.times, view.expected.iter().copied())),
            ),
            Layer::new(
                "ahead",
                "forecast ahead",
                Role::Forecast,
                Mark::Line(points(&view.ahead.times, ahead)),
            ),
            Layer::new(
                "short",
                "too few",
                Role::Short,
                Mark::Shortage(shortages(view)),
            ),
        ],
        ..Panel::default()
    }
}

/// The minutes in which fewer replicas served than the demand needs.
fn shortages(view: &HistoryView) -> Vec<Shortage> {
    iter::zip(&view.times, iter::zip(&view.needed, &view.ready))
        .filter_map(|(second, (needed, ready))| {
            let (needed, had) = (f64::from((*needed)?), f64::from((*ready)?));
            (needed > TOLERATED * had).then(|| Shortage {
                at: at(*second),
                until: at(second + 60),
                had,
                needed,
            })
        })
        .collect()
}

/// Text alternative of the chart.
fn described(key: &ObjectKey, view: &HistoryView) -> String {
    let counts = view.current.iter().flatten();
    let (low, high) = (counts.clone().min(), counts.max());
    match low.zip(high) {
        Some((low, high)) => format!(
            "{}/{}: {low} to {high} replicas; fewer served than were needed for {} of {} recorded minutes",
            key.namespace,
            key.name,
            grouped(shortages(view).len() as u64),
            grouped(view.times.len() as u64)
        ),
        None => "nothing is recorded in this span".to_owned(),
    }
}

/// Proposals, bounds, the steps of the decision, and the running replicas.
fn replicas(view: &HistoryView) -> Panel {
    let ready = points(&view.times, view.ready.iter().copied());
    let layer = |id: &str, name: &str, role: Role, values: &[Option<u32>]| {
        let steps = points(&view.times, values.iter().copied());
        Layer::new(id, name, role, Mark::Steps(steps))
    };
    let proposed = Source::ALL.iter().map(|source| {
        let name = format!("asked by {}", source.phrases().legend);
        let values = view.proposed.get(source).map_or(&[][..], Vec::as_slice);
        // A test gives every source a role of its own.
        let role = Role::of_class(source.as_str()).unwrap_or(Role::Floor);
        layer(source.as_str(), &name, role, values)
    });
    let back = [
        Layer::new("ready", "ready", Role::Desired, Mark::Area(ready)),
        bound("min", "minReplicas", &view.times, &view.min),
        bound("max", "maxReplicas", &view.times, &view.max),
    ];
    let front = [
        layer("floor", "floor", Role::Floor, &view.floor),
        layer("highest", "highest proposal", Role::Desired, &view.highest),
        layer("stabilized", "stabilized", Role::Desired, &view.stabilized),
        layer("limited", "limited", Role::Desired, &view.limited),
        layer("current", "current", Role::Desired, &view.current),
        layer("desired", "desired", Role::Desired, &view.desired),
    ];
    Panel {
        id: "replicas".to_owned(),
        name: "Replicas".to_owned(),
        note: allowed(view),
        unit: Unit::Replicas,
        // Each layer is drawn over the previous ones, so the area is first and the result of the decision last.
        layers: back.into_iter().chain(proposed).chain(front).collect(),
        ..Panel::default()
    }
}

/// The bounds in force, which may be too far away to be drawn.
fn allowed(view: &HistoryView) -> String {
    let min = view.min.iter().flatten().next_back();
    match min.zip(view.max.iter().flatten().next_back()) {
        Some((min, max)) => format!("{min} to {max} allowed"),
        None => String::new(),
    }
}

/// A bound. One that stays the same is a rule, which is left out where it is far above the rest.
fn bound(id: &str, name: &str, times: &[i64], values: &[Option<u32>]) -> Layer {
    let mut known = values.iter().flatten();
    let mark = match known.next() {
        Some(first) if known.all(|value| value == first) => Mark::Rule(f64::from(*first)),
        _ => Mark::Steps(points(times, values.iter().copied())),
    };
    Layer::new(id, name, Role::Bounds, mark)
}

/// The known values of a column with their instants.
pub fn points<T: Into<f64>>(
    times: &[i64],
    values: impl IntoIterator<Item = Option<T>>,
) -> Vec<Point> {
    iter::zip(times, values)
        .filter_map(|(second, value)| {
            let (at, value) = (at(*second), value?.into());
            Some(Point { at, value })
        })
        .collect()
}

fn bands(times: &[i64], low: &[Option<f32>], high: &[Option<f32>]) -> Vec<Band> {
    iter::zip(times, iter::zip(low, high))
        .filter_map(|(second, (low, high))| {
            let (at, low, high) = (at(*second), (*low)?.into(), (*high)?.into());
            // A low quantile may lie below the expectation; then there is no range to draw.
            (low <= high).then_some(Band { at, low, high })
        })
        .collect()
}

impl Page {
    /// The members of fleets, as SVG.
    ///
    /// # Errors
    /// [`ViewError::BadQuery`].
    pub fn clusters_svg(&self, visible: &Visible, width: Option<u32>) -> Result<String, ViewError> {
        Ok(clusters(&self.clusters(visible), self::width(width)?))
    }
}

/// The members of fleets: a bar for each share.
fn clusters(clusters: &ClustersView, width: u32) -> String {
    let mut bars = Vec::new();
    for cluster in &clusters.clusters {
        let is_lost = cluster.ready == Some(false);
        let seen = if is_lost { ", last seen" } else { "" };
        for ClusterShare { autoscaler, status } in &cluster.shares {
            bars.push(Bar {
                name: cluster.name.clone(),
                note: format!("{}/{}{seen}", autoscaler.namespace, autoscaler.name),
                is_lost,
                budget: (
                    count(status.min).unwrap_or(0),
                    count(status.max).unwrap_or(0),
                ),
                capacity: count(status.capacity),
                ready: count(status.ready),
                pending: count(status.pending).unwrap_or(0),
            });
        }
    }
    Bars {
        title: "Member clusters".to_owned(),
        description: "The budget of each member of each fleet, the pods that are ready and pending, and its capacity".to_owned(),
        width,
        bars,
    }
    .draw().fragment()
}

fn count(count: Option<i32>) -> Option<u32> {
    u32::try_from(count?).ok()
}

/// The windows of some weeks.
pub fn calendar(
    windows: &[CalendarWindow],
    span: Span,
    zone: &Zone,
    (width, now): (u32, Timestamp),
) -> String {
    let first = at(span.from).to_zoned(zone.rules().clone()).date();
    let end = at(span.until).to_zoned(zone.rules().clone()).date();
    let days = first.until(end).map_or(0, |span| span.get_days());
    let shown = windows.iter().map(|opening| {
        let WindowSpan { name, span, .. } = &opening.window;
        let key = &opening.autoscaler;
        window(format!("{}/{}: {name}", key.namespace, key.name), *span)
    });
    Calendar {
        title: "Cron windows".to_owned(),
        description: "A row for each day, a bar for each window that is open".to_owned(),
        width,
        first,
        days: u16::try_from(days).unwrap_or(0),
        now: Some(now),
        zone: zone.rules().clone(),
        windows: shown.collect(),
    }
    .draw()
    .fragment()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_a_color_of_its_own() {
        for source in Source::ALL {
            assert!(Role::of_class(source.as_str()).is_some(), "{source}");
        }
    }
}
