use jiff::{Timestamp, tz::TimeZone};
use proptest::prelude::*;

use super::*;
use crate::{Band, Headline, Point, Shortage, Unit};

/// The distance that rounding may move a text.
const ROUNDED: f64 = 0.06;

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).unwrap()
}

fn points(values: &[f64]) -> Vec<Point> {
    let points = (0..).zip(values).map(|(minute, value)| Point {
        at: at(minute),
        value: *value,
    });
    points.collect()
}

fn layer(id: &str, mark: Mark) -> Layer {
    Layer::new(id, id, Role::Observed, mark)
}

/// Ten minutes, 130 pixels high.
fn chart(panel: Panel) -> Chart {
    Chart {
        span: (at(0), at(10)),
        width: 752,
        panels: vec![Panel {
            top: Some(13.0),
            ..panel
        }],
        ..Chart::default()
    }
}

/// The place of a minute.
fn x(chart: &Chart, minutes: f64) -> Length {
    let scale = Scale::new(Some(13.0), 0.0, 4.0, &Unit::None);
    let wide = f64::from(chart.width) - LEFT - chart.right(&[scale]);
    Length(LEFT + wide * minutes / 10.0)
}

/// The data of the path of a layer, with the corner that each command leads to.
fn data(svg: &str, id: &str) -> Option<String> {
    let (_, rest) = svg.split_once(&format!("data-layer=\"{id}\" d=\""))?;
    let apart = rest.split('"').next()?.replace('-', " -");
    let mut corners = String::new();
    let (mut x, mut y) = (0.0, 0.0);
    for part in apart
        .split_inclusive(char::is_alphabetic)
        .collect::<Vec<_>>()
        .windows(2)
    {
        let command = part.first()?.chars().last()?;
        let numbers = part.last()?.trim_end_matches(char::is_alphabetic);
        let numbers: Vec<f64> = numbers
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        for to in numbers.chunks(if matches!(command, 'h' | 'v') { 1 } else { 2 }) {
            (x, y) = match (command, to) {
                ('M', [across, down]) => (*across, *down),
                ('l', [across, down]) => (x + across, y + down),
                ('h', [across]) => (x + across, y),
                ('v', [down]) => (x, y + down),
                _ => return None,
            };
            let letter = if command == 'M' { "M" } else { "L" };
            let _infallible = write!(corners, "{letter}{} {}", Length(x), Length(y));
        }
    }
    Some(corners)
}

/// The texts of a class: where each begins, ends and stands.
fn texts(svg: &str, class: &str) -> Vec<(f64, f64, f64, String)> {
    let part = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        Some(rest.split('"').next()?.to_owned())
    };
    let lines = svg
        .lines()
        .filter(|line| line.contains(&format!("class=\"{class}\"")));
    let text = |line: &str| {
        let text = line.split_once('>')?.1.split('<').next()?.to_owned();
        let (x, y): (f64, f64) = (
            part(line, " x")?.parse().ok()?,
            part(line, " y")?.parse().ok()?,
        );
        let wide = width(&text, SMALL);
        let from = match part(line, "text-anchor").as_deref() {
            Some("middle") => x - wide / 2.0,
            Some("end") => x - wide,
            _ => x,
        };
        Some((from, from + wide, y, text))
    };
    lines
        .filter(|line| line.starts_with("<text"))
        .filter_map(text)
        .collect()
}

#[test]
fn each_mark_stands_where_time_and_value_say() {
    let shortage = Shortage {
        at: at(1),
        until: at(2),
        had: 1.3,
        needed: 6.5,
    };
    let band = |minute, low, high| Band {
        at: at(minute),
        low,
        high,
    };
    let chart = chart(Panel {
        layers: vec![
            layer("area", Mark::Area(points(&[0.0, 6.5, 13.0]))),
            layer("steps", Mark::Steps(points(&[1.3, 1.3, 2.6]))),
            layer("line", Mark::Line(points(&[1.3, 99.0]))),
            layer(
                "band",
                Mark::Band(vec![band(5, 1.3, 2.6), band(6, 2.6, 2.6)]),
            ),
            layer("rule", Mark::Rule(6.5)),
            layer("short", Mark::Shortage(vec![shortage])),
        ],
        ..Panel::default()
    });
    let svg = chart.draw().svg();
    let (plot, _) = svg.split_once("<path").unwrap();
    let (_, plot) = plot.split_once("<rect class=\"plot\" ").unwrap();
    assert!(plot.contains("x=\"12\" y=\"8\""), "{plot}");
    let [one, two, five, six, ten] = [1.0, 2.0, 5.0, 6.0, 10.0].map(|minutes| x(&chart, minutes));
    for (id, expected) in [
        ("area", format!("M12 138L{one} 73L{two} 8L{two} 138")),
        ("steps", format!("M12 125L{two} 125L{two} 112")),
        ("line", format!("M12 125L{one} 8")),
        ("band", format!("M{five} 112L{six} 112L{five} 125")),
        ("rule", format!("M12 73L{ten} 73")),
        ("short", format!("M{one} 125L{one} 73L{two} 73L{two} 125")),
    ] {
        assert_eq!(data(&svg, id), Some(expected), "{id}");
    }
    assert!(svg.contains(&format!(
        "<path class=\"observed tint\" d=\"M{one} 138v-130h"
    )));
}

#[test]
fn a_hole_stays_a_hole_and_odd_values_are_left_out() {
    let mut values = points(&[1.0, f64::NAN, 1.0, f64::INFINITY, 1.0, 1.0]);
    values.extend([60, 61, 62, 63].map(|minute| Point {
        at: at(minute),
        value: 1.0,
    }));
    let mut odd = chart(Panel {
        layers: vec![layer("area", Mark::Area(values))],
        ..Panel::default()
    });
    odd.span = (at(0), at(100));
    let svg = odd.draw().svg();
    let area = data(&svg, "area").unwrap();
    assert_eq!(area.matches('M').count(), 2, "{area}");
    let heights = area
        .split(['M', 'L'])
        .filter_map(|corner| corner.split(' ').nth(1));
    assert!(
        heights.into_iter().all(|y| y == "138" || y == "128"),
        "{area}"
    );
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    odd.span = (at(5), at(5));
    assert_eq!(data(&odd.draw().svg(), "area"), None);
}

#[test]
fn steps_hold_their_level_over_any_time_and_end_where_a_value_is_missing() {
    let steps = [(-60, 1.3), (2, 2.6), (4, f64::NAN), (8, 13.0), (60, 0.0)];
    let steps = steps.map(|(minute, value)| Point {
        at: at(minute),
        value,
    });
    let chart = chart(Panel {
        layers: vec![layer("steps", Mark::Steps(steps.to_vec()))],
        ..Panel::default()
    });
    let [two, four, eight, ten] = [2.0, 4.0, 8.0, 10.0].map(|minutes| x(&chart, minutes));
    let expected = format!("M12 125L{two} 125L{two} 112L{four} 112M{eight} 8L{ten} 8");
    assert_eq!(data(&chart.draw().svg(), "steps"), Some(expected));
}

#[test]
fn a_bound_far_above_the_rest_does_not_squash_it() {
    let top = |max: f64| {
        let mut chart = chart(Panel {
            layers: vec![
                layer("max", Mark::Rule(max)),
                layer("line", Mark::Line(points(&[3.0, 10.0]))),
            ],
            ..Panel::default()
        });
        chart.panels[0].top = None;
        let svg = chart.draw().svg();
        let (_, rest) = svg.split_once("data-top=\"").unwrap();
        let top = rest.split('"').next().unwrap().to_owned();
        (
            top,
            data(&svg, "max").is_some(),
            svg.contains(">max 100 \u{2191}</text>"),
        )
    };
    assert_eq!(top(15.0), ("15".to_owned(), true, false));
    assert_eq!(top(100.0), ("10".to_owned(), false, true));
    assert_eq!(top(f64::NAN), ("10".to_owned(), false, false));
}

#[test]
fn names_cannot_leave_their_element_or_attribute() {
    let evil = "</text><script>&\"\u{1b}[2J\u{0}";
    let mut chart = chart(Panel {
        id: evil.to_owned(),
        name: evil.to_owned(),
        note: evil.to_owned(),
        headline: Some(Headline {
            text: evil.to_owned(),
            good: true,
        }),
        unit: Unit::Named(evil.to_owned()),
        layers: vec![layer(evil, Mark::Rule(1.0))],
        windows: vec![Window {
            name: evil.to_owned(),
            from: at(1),
            until: at(9),
        }],
        ..Panel::default()
    });
    evil.clone_into(&mut chart.title);
    evil.clone_into(&mut chart.description);
    let svg = chart.draw().fragment();
    assert!(
        svg.contains("data-panel=\"&lt;/text&gt;&lt;script&gt;&amp;&quot;\u{fffd}[2J\u{fffd}\"")
    );
    assert!(!svg.contains("<script") && !svg.contains("&\""), "{svg}");
    assert!(!svg.chars().any(|c| c.is_control() && c != '\n'), "{svg}");
    assert!(
        !svg.contains("style"),
        "a page allows no styles of others: {svg}"
    );
}

#[test]
fn weeks_are_not_larger_than_the_picture_is_wide() {
    let value = |minute: i32| 6.0 + 5.0 * (f64::from(minute) * 0.7).sin();
    let svg = |minutes: i32| {
        let values: Vec<f64> = (0..minutes).map(value).collect();
        Chart {
            span: (at(0), at(minutes.into())),
            ..chart(Panel {
                layers: vec![
                    layer("area", Mark::Area(points(&values))),
                    layer("steps", Mark::Steps(points(&values))),
                ],
                ..Panel::default()
            })
        }
        .draw()
        .fragment()
    };
    let (weeks, months) = (svg(20_160).len(), svg(161_280).len());
    assert!(
        weeks < 120_000 && months < weeks * 11 / 10,
        "{weeks} {months}"
    );
}

proptest! {
    #[test]
    fn labels_never_overlap(
        wide in 200..1400_u32,
        from in 1_700_000_000..1_800_000_000_i64,
        minutes in 5..60_000_i64,
        now in 0.0..1.0_f64,
        zone in prop_oneof![Just("UTC"), Just("Europe/Berlin"), Just("Asia/Kolkata")],
        highest in 0.001..1e7_f64,
        high in 60..400_u32,
    ) {
        let from = Timestamp::from_second(from).unwrap();
        let until = Timestamp::from_second(from.as_second() + 60 * minutes).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "minutes")]
        let now = from.as_second() + (now * (60 * minutes) as f64) as i64;
        let window = |name: &str| Window { name: name.to_owned(), from, until };
        let svg = Chart {
            span: (from, until),
            now: Timestamp::from_second(now).ok(),
            zone: TimeZone::get(zone).unwrap(),
            width: wide,
            height: high,
            panels: vec![Panel {
                unit: Unit::Bytes,
                layers: vec![layer("rule", Mark::Rule(highest))],
                windows: vec![window("one"), window("two"), window("three"), window("four")],
                ..Panel::default()
            }],
            ..Chart::default()
        }
        .draw().svg();
        let times = texts(&svg, "time");
        for (index, (from, until, _, text)) in times.iter().enumerate() {
            prop_assert!(*from >= -ROUNDED && *until <= f64::from(wide) + ROUNDED, "{} is outside", text);
            for (other, end, _, touched) in times.iter().skip(index + 1) {
                prop_assert!(*until <= *other || *end <= *from, "{} and {}", text, touched);
            }
        }
        let names = texts(&svg, "label");
        for (index, (from, until, y, name)) in names.iter().enumerate() {
            for (other, end, below, touched) in names.iter().skip(index + 1) {
                let beside = until <= other || end <= from;
                prop_assert!(beside || (below - y).abs() >= SMALL, "{} and {}", name, touched);
            }
        }
        let values = texts(&svg, "value");
        prop_assert!(values.len() >= 2);
        for pair in values.windows(2) {
            prop_assert!(pair[0].2 - pair[1].2 >= SMALL, "{} and {}", pair[0].3, pair[1].3);
        }
        prop_assert!(values.iter().all(|(_, until, ..)| *until <= f64::from(wide) + ROUNDED));
    }
}

#[test]
fn rules_that_look_alike_share_a_sign() {
    let rule = |id: &str, value| layer(id, Mark::Rule(value));
    let chart = chart(Panel {
        layers: vec![rule("min", 2.0), rule("max", 9.0)],
        ..Panel::default()
    });
    let names: Vec<_> = chart
        .panels
        .iter()
        .flat_map(|panel| &panel.layers)
        .collect();
    let together = names
        .iter()
        .map(|layer| layer.name.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let svg = chart.draw().svg();
    assert!(svg.contains(&format!(">{together}</text>")), "{svg}");
}
