//! Windows over days and weeks: a row per day, a bar per window, and the hours that a clock change skips or repeats.
//!
//! Bars stand at civil times, as people write windows. On the day of a clock change a bar may begin and end at a time
//! that occurs twice; it is then drawn in two pieces, before and after the change.

use std::fmt::Write as _;

use jiff::{
    Timestamp, ToSpan,
    civil::{Date, Weekday},
    tz::{Offset, TimeZone},
};

use crate::{
    Role, Window,
    axis::{real, second},
    svg::{Drawing, GAP, LEFT, Length, SMALL, Sheet, Sign, Text, span_attributes, width},
};

/// The height of a bar, its distance to the next, and the margin of a row.
const BAR: f64 = 18.0;
const BETWEEN: f64 = 2.0;
const MARGIN: f64 = 3.0;
/// The least width of a bar, so that each is seen.
const LEAST: f64 = 3.0;
/// Hours between two labels, from the widest picture to the narrowest.
const HOURS: [u8; 4] = [1, 2, 3, 6];
const DAY: f64 = 86_400.0;
/// The most windows that get a number each, which the legend explains.
const NUMBERED: usize = 12;

/// A row per day.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// The title.
    pub title: String,
    /// The description for screen readers.
    pub description: String,
    /// The width of the picture, in pixels.
    pub width: u32,
    /// The first day.
    pub first: Date,
    /// The number of days.
    pub days: u16,
    /// The present.
    pub now: Option<Timestamp>,
    /// The zone in which days begin.
    pub zone: TimeZone,
    /// The windows in the order of their beginnings. They may overlap.
    pub windows: Vec<Window>,
}

/// One day: its date, when it begins and ends, and the clock changes within it.
struct Day {
    date: Date,
    from: Timestamp,
    until: Timestamp,
    /// Parts of one offset each.
    parts: Vec<(Timestamp, Timestamp, Offset)>,
}

/// The horizontal place of the hours of a day.
#[derive(Clone, Copy)]
struct Hours {
    left: f64,
    width: f64,
}

// === impl Calendar ===

impl Default for Calendar {
    /// A calendar without days, in UTC.
    fn default() -> Self {
        Self {
            title: String::new(),
            description: String::new(),
            width: 860,
            first: Date::default(),
            days: 0,
            now: None,
            zone: TimeZone::UTC,
            windows: Vec::new(),
        }
    }
}

impl Calendar {
    /// Draws the calendar.
    pub fn draw(&self) -> Drawing {
        let mut sheet = Sheet::new(&self.title, &self.description, self.width);
        let days: Vec<Day> = (0..i64::from(self.days))
            .map_while(|day| Day::new(self.first.checked_add(day.days()).ok()?, &self.zone))
            .collect();
        if let (Some(first), Some(last)) = (days.first(), days.last()) {
            sheet.attributes = span_attributes((first.from, last.until));
        }
        // The label of today is bold, and so wider.
        let left = LEFT + width("Wed 00 May", SMALL * 1.06) + GAP;
        let wide = sheet.width - left - LEFT;
        let hours = Hours { left, width: wide };
        sheet.height += GAP;
        let every = hours.label(&mut sheet);
        // The grid is drawn behind the rows, so it comes first in the text; but its height is known only after them.
        let (top, body) = (sheet.height, std::mem::take(&mut sheet.body));
        let names = self.names();
        for day in &days {
            self.row(&mut sheet, day, hours, &names);
        }
        let rows = std::mem::replace(&mut sheet.body, body);
        let mut grid = String::new();
        for hour in (0..=24).step_by(every) {
            let x = Length(hours.x(f64::from(hour) / 24.0));
            let _infallible = write!(grid, "M{x} {}V{}", Length(top), Length(sheet.height));
        }
        sheet.path("grid", &grid);
        sheet.body.push_str(&rows);
        sheet.legend(&self.signs(&days, &names));
        Drawing(sheet)
    }

    fn row(&self, sheet: &mut Sheet, day: &Day, hours: Hours, names: &[&str]) {
        let y = sheet.height + MARGIN;
        let edge = match day.date.weekday() {
            Weekday::Monday => "now",
            _ => "grid",
        };
        let (left, right) = (Length(LEFT), Length(hours.x(1.0)));
        sheet.path(edge, &format!("M{left} {}H{right}", Length(sheet.height)));
        let label = day.date.strftime("%a %d %b").to_string();
        let class = match self.now {
            Some(now) if day.contains(now) => "strong",
            _ => "",
        };
        sheet.text(class, LEFT, y + SMALL, &label);
        day.changes(sheet, hours, &self.zone);
        let mut free: Vec<Timestamp> = Vec::new();
        for window in self.windows.iter().filter(|window| day.meets(window)) {
            let free_lane = free.iter().position(|taken| *taken <= window.from);
            let lane = free_lane.unwrap_or(free.len());
            match free.get_mut(lane) {
                Some(taken) => *taken = window.until,
                None => free.push(window.until),
            }
            let top = y + real(lane) * (BAR + BETWEEN);
            let number = names
                .iter()
                .position(|name| *name == window.name)
                .map(|index| (index + 1).to_string());
            self.bar(sheet, (window, number), day, (hours, top));
        }
        sheet.height = y + real(free.len().max(1)) * (BAR + BETWEEN) + MARGIN - BETWEEN;
        if let Some((now, x)) = self.now.and_then(|now| Some((now, day.position(now)?))) {
            let x = Length(hours.x(x));
            let (top, bottom) = (Length(y - MARGIN), Length(sheet.height));
            let at = now.to_zoned(self.zone.clone()).strftime("%H:%M");
            sheet.add(format_args!(
                "<path class=\"short line\" d=\"M{x} {top}V{bottom}\"><title>now, {at}</title></path>"
            ));
        }
    }

    /// The part of a window on this day.
    fn bar(
        &self,
        sheet: &mut Sheet,
        (window, number): (&Window, Option<String>),
        day: &Day,
        (hours, y): (Hours, f64),
    ) {
        let (from, until) = (self.time(window.from), self.time(window.until));
        let about = format!("{}: {from} to {until}", window.name);
        let class = Role::Cron.class("bar soft");
        let mut free = f64::NEG_INFINITY;
        let mut place = (0.0, 0.0);
        sheet.add(format_args!("<g><title>{}</title>", Text(&about)));
        for (from, until) in day.pieces(window) {
            let x = hours.x(from);
            let wide = (hours.x(until) - x).max(LEAST);
            // A clock change divides the bar; the name goes into its widest part.
            if wide > free {
                (free, place) = (wide, (x, y));
            }
            sheet.add(format_args!(
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\" rx=\"3\"/>",
                Length(x),
                Length(y),
                Length(wide),
            ));
        }
        let mut labels = [Some(window.name.clone()), number].into_iter().flatten();
        if let Some(label) = labels.find(|label| width(label, SMALL) + GAP <= free) {
            sheet.text("", place.0 + GAP / 2.0, y + SMALL, &label);
        }
        sheet.body.push_str("</g>\n");
    }

    /// An instant as a day and a time in the zone.
    fn time(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone())
            .strftime("%a %d %b %H:%M")
            .to_string()
    }

    /// The windows that numbers stand for where a bar is too short for a name; none if there are too many.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for window in &self.windows {
            if !names.contains(&window.name.as_str()) {
                names.push(&window.name);
            }
            if names.len() > NUMBERED {
                return Vec::new();
            }
        }
        names
    }

    fn signs(&self, days: &[Day], names: &[&str]) -> Vec<Sign<'static>> {
        let changes = days.iter().any(|day| day.parts.len() > 1);
        let now = self
            .now
            .filter(|now| days.iter().any(|day| day.contains(*now)));
        let mut signs: Vec<_> = names
            .iter()
            .zip(1..)
            .map(|(name, number)| Sign::new(Role::Cron, "bar soft", format!("{number} {name}")))
            .collect();
        if signs.is_empty() {
            signs.push(Sign::new(Role::Cron, "bar soft", "window"));
        }
        if changes {
            signs.push(Sign::new(Role::Short, "bar soft", "clock change"));
        }
        if now.is_some() {
            signs.push(Sign::new(Role::Short, "line", "now"));
        }
        signs
    }
}

// === impl Day ===

impl Day {
    /// A day of a zone; none at the end of all time.
    fn new(date: Date, zone: &TimeZone) -> Option<Self> {
        let from = zone.to_timestamp(date.at(0, 0, 0, 0)).ok()?;
        let tomorrow = date.tomorrow().ok()?;
        let until = zone.to_timestamp(tomorrow.at(0, 0, 0, 0)).ok()?;
        let mut parts: Vec<(Timestamp, Timestamp, Offset)> = Vec::new();
        let mut begin = (from, zone.to_offset(from));
        for change in zone
            .following(from)
            .take_while(|change| change.timestamp() < until)
        {
            // A zone may change its abbreviation alone.
            if change.offset() != begin.1 {
                parts.push((begin.0, change.timestamp(), begin.1));
                begin = (change.timestamp(), change.offset());
            }
        }
        parts.push((begin.0, until, begin.1));
        Some(Self {
            date,
            from,
            until,
            parts,
        })
    }

    fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }

    fn meets(&self, window: &Window) -> bool {
        // A window that ends when it begins overlaps no span, but has a bar of the least width.
        let instant = window.from == window.until && self.contains(window.from);
        instant || (window.from < self.until && self.from < window.until)
    }

    /// The civil time of an instant at an offset, as a part of 24 hours.
    fn civil(&self, at: Timestamp, offset: Offset) -> f64 {
        let midnight = Offset::UTC
            .to_timestamp(self.date.at(0, 0, 0, 0))
            .map_or(0.0, second);
        (second(at) + f64::from(offset.seconds()) - midnight) / DAY
    }

    fn position(&self, at: Timestamp) -> Option<f64> {
        self.parts
            .iter()
            .find(|(from, until, _)| (*from..*until).contains(&at))
            .map(|(.., offset)| self.civil(at, *offset))
    }

    /// The pieces in which a window is drawn, one per offset: their ends as parts of 24 hours.
    fn pieces(&self, window: &Window) -> Vec<(f64, f64)> {
        self.parts
            .iter()
            .filter_map(|(from, until, offset)| {
                let (from, until) = (window.from.max(*from), window.until.min(*until));
                (from < until || window.from == window.until && from == until)
                    .then(|| (self.civil(from, *offset), self.civil(until, *offset)))
            })
            .collect()
    }

    /// The hours that do not occur on this day, or occur twice.
    fn changes(&self, sheet: &mut Sheet, hours: Hours, zone: &TimeZone) {
        for pair in self.parts.windows(2) {
            let [(_, at, before), (.., after)] = pair else {
                continue;
            };
            let (old, new) = (self.civil(*at, *before), self.civil(*at, *after));
            let what = if new > old {
                "is skipped"
            } else {
                "occurs twice"
            };
            let (from, until) = (old.min(new), old.max(new));
            let name = zone.to_offset_info(*at).abbreviation().to_owned();
            let (x, wide) = (hours.x(from), hours.x(until) - hours.x(from));
            sheet.add(format_args!(
                "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>clock change: {} to {} {what}, then {}</title></rect>",
                Role::Short.class("bar soft"),
                Length(x),
                Length(sheet.height),
                Length(wide),
                BAR + 2.0 * MARGIN,
                clock(from),
                clock(until),
                Text(&name),
            ));
        }
    }
}

// === impl Hours ===

impl Hours {
    fn x(self, part: f64) -> f64 {
        self.left + part.clamp(0.0, 1.0) * self.width
    }

    /// Writes the hours above the rows; returns their distance in hours.
    fn label(self, sheet: &mut Sheet) -> usize {
        let room = width("00:00", SMALL) + GAP;
        let fits = HOURS
            .into_iter()
            .find(|hours| f64::from(*hours) / 24.0 * self.width >= room);
        let every = usize::from(fits.unwrap_or(12));
        sheet.height += SMALL;
        // 24:00 is the 00:00 of the next row, and would stand close to the hour before it.
        for hour in (0..24).step_by(every) {
            let x = self.x(f64::from(hour) / 24.0);
            sheet.anchored(
                "time",
                "middle",
                (x, sheet.height),
                &format!("{hour:02}:00"),
            );
        }
        sheet.height += GAP;
        every
    }
}

/// A part of a day as a time of day.
fn clock(part: f64) -> String {
    let minutes = crate::axis::floor((part * 1440.0).round());
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn berlin() -> TimeZone {
        TimeZone::get("Europe/Berlin").unwrap()
    }

    /// The pieces of a window of two instants of 2026 in UTC on a day of Berlin, in hours.
    fn drawn(day: Date, from: &str, until: &str) -> Vec<(f64, f64)> {
        let window = Window {
            name: "night".to_owned(),
            from: format!("2026-{from}").parse().unwrap(),
            until: format!("2026-{until}").parse().unwrap(),
        };
        let pieces = Day::new(day, &berlin()).unwrap().pieces(&window);
        let hours = |part: f64| (part * 240.0).round() / 10.0;
        pieces
            .into_iter()
            .map(|(from, until)| (hours(from), hours(until)))
            .collect()
    }

    #[test]
    fn windows_stand_at_civil_times_on_days_of_23_24_and_25_hours() {
        let (usual, spring, autumn) = (date(2026, 7, 6), date(2026, 3, 29), date(2026, 10, 25));
        let without_an_hour = vec![(1.0, 2.0), (3.0, 4.0)];
        let twice = vec![(2.5, 3.0), (2.0, 2.3)];
        for (day, from, until, expected) in [
            (usual, "07-06T06:00Z", "07-06T16:30Z", vec![(8.0, 18.5)]),
            // Over midnight: the part of this day.
            (usual, "07-05T20:00Z", "07-06T01:00Z", vec![(0.0, 3.0)]),
            (usual, "07-06T21:00Z", "07-07T03:00Z", vec![(23.0, 24.0)]),
            (usual, "07-07T21:00Z", "07-08T03:00Z", vec![]),
            // From 1:00 to 4:00, which is two hours.
            (spring, "03-29T00:00Z", "03-29T02:00Z", without_an_hour),
            // From 2:30 to 2:15, which is 45 minutes.
            (autumn, "10-25T00:30Z", "10-25T01:15Z", twice),
        ] {
            assert_eq!(drawn(day, from, until), expected, "{from} to {until}");
        }
    }

    #[test]
    fn a_bar_that_is_too_short_for_a_name_has_the_number_of_its_window() {
        let window = |name: &str, until: &str| Window {
            name: name.to_owned(),
            from: "2026-07-06T06:00Z".parse().unwrap(),
            until: until.parse().unwrap(),
        };
        let svg = Calendar {
            width: 640,
            first: date(2026, 7, 6),
            days: 1,
            windows: vec![
                window("shop/web office", "2026-07-06T16:00Z"),
                window("shop/web launch", "2026-07-06T07:30Z"),
            ],
            ..Calendar::default()
        }
        .draw()
        .svg();
        for text in [
            ">shop/web office<",
            ">2<",
            ">1 shop/web office<",
            ">2 shop/web launch<",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains(">shop/web launch<"), "{svg}");
    }

    #[test]
    fn a_clock_change_is_marked_and_windows_at_once_stand_one_below_the_other() {
        let at = |text: &str| text.parse().unwrap();
        let window = |name: &str, from, until| Window {
            name: name.to_owned(),
            from: at(from),
            until: at(until),
        };
        let svg = Calendar {
            first: date(2026, 3, 28),
            days: 2,
            zone: berlin(),
            now: Some(at("2026-03-28T11:00Z")),
            windows: vec![
                window("a", "2026-03-28T06:00Z", "2026-03-28T12:00Z"),
                window("<b>", "2026-03-28T09:00Z", "2026-03-28T13:00Z"),
                window("c", "2026-03-28T12:00Z", "2026-03-28T14:00Z"),
                window("d", "2026-03-28T12:30Z", "2026-03-28T15:00Z"),
            ],
            ..Calendar::default()
        }
        .draw()
        .svg();
        assert!(svg.contains("<title>clock change: 02:00 to 03:00 is skipped, then CEST</title>"));
        assert!(svg.contains("<title>&lt;b&gt;: Sat 28 Mar 10:00 to Sat 28 Mar 14:00</title>"));
        assert!(svg.contains("<title>now, 12:00</title>"), "{svg}");
        let heights = svg.lines().filter(|line| line.contains("rx=\"3\""));
        let heights: Vec<_> = heights
            .map(|line| line.split(" y=\"").nth(1).unwrap())
            .collect();
        let heights: Vec<_> = heights
            .iter()
            .map(|rest| rest.split('"').next().unwrap())
            .collect();
        assert_eq!(heights, ["32", "52", "32", "72"]);
    }
}
