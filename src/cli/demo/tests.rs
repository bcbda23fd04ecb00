//! The demo on terminals of every size.

use foretide_domain::cron::Zone;
use jiff::Timestamp;

use super::*;

const PLAIN: Screen = Screen {
    color: false,
    unicode: true,
    cursor: true,
    size: None,
};

/// A plain screen at the epoch, in UTC.
pub(super) fn context() -> CommandContext {
    CommandContext {
        screen: PLAIN,
        local: Zone::utc(),
        now: Timestamp::UNIX_EPOCH,
        machine: crate::machine::Machine::system(),
    }
}

fn args() -> DemoArgs {
    DemoArgs {
        scenario: Scenario::default(),
        fleet: false,
        page: PageArgs {
            web: false,
            at: ListenArgs {
                listen: ([127, 0, 0, 1], 0).into(),
            },
        },
        speed: 1.0,
        no_animation: false,
        ascii: false,
        output: PictureFormat::Text,
    }
}

/// Every animation.
fn all_args() -> [DemoArgs; 4] {
    let scene = |scenario| DemoArgs { scenario, ..args() };
    let fleet = DemoArgs {
        fleet: true,
        ..args()
    };
    let [shop, batch, surge] = [Scenario::Shop, Scenario::Batch, Scenario::Surge].map(scene);
    [shop, batch, surge, fleet]
}

/// A terminal that shows what it gets, and has a size for each frame; the last one remains.
struct Recorder {
    sizes: Vec<Size>,
    stop_after: usize,
    waits: Vec<Duration>,
}

impl Recorder {
    fn new(sizes: &[(usize, usize)]) -> Self {
        let size = |(columns, rows): &(usize, usize)| Size {
            columns: *columns,
            rows: *rows,
        };
        Self {
            sizes: sizes.iter().map(size).collect(),
            stop_after: usize::MAX,
            waits: Vec::new(),
        }
    }
}

impl Terminal for Recorder {
    fn size(&mut self) -> Size {
        let at = self.waits.len().min(self.sizes.len() - 1);
        self.sizes[at]
    }

    fn wait(&mut self, span: Duration) -> Playback {
        self.waits.push(span);
        if self.waits.len() == self.stop_after {
            Playback::Stop
        } else {
            Playback::Continue
        }
    }
}

/// What is written to a terminal, one part per write that is flushed.
#[derive(Default)]
struct Flushes {
    parts: Vec<String>,
    open: Vec<u8>,
}

impl Write for Flushes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.open);
        self.parts.push(String::from_utf8(part).unwrap());
        Ok(())
    }
}

fn played(args: &DemoArgs, terminal: &mut Recorder) -> Vec<String> {
    let mut to = Flushes::default();
    play(args, &context(), &mut to, terminal).unwrap();
    to.parts
}

/// What a terminal shows that never scrolled, line by line.
fn shown(terminal: &vt100::Parser) -> Vec<String> {
    let (_, columns) = terminal.screen().size();
    let rows = terminal.screen().rows(0, columns);
    rows.map(|row| row.trim_end().to_owned()).collect()
}

fn scrolled(terminal: &mut vt100::Parser) -> usize {
    terminal.screen_mut().set_scrollback(usize::MAX);
    let lines = terminal.screen().scrollback();
    terminal.screen_mut().set_scrollback(0);
    lines
}

fn terminal(size: Size) -> vt100::Parser {
    let (rows, columns) = (
        size.rows.try_into().unwrap(),
        size.columns.try_into().unwrap(),
    );
    vt100::Parser::new(rows, columns, 10_000)
}

/// The parts of a frame that must be seen, and the last words of what must not be cut.
fn assert_whole(frame: &str, size: Size) {
    let mut screen = terminal(size);
    screen.process(
        frame
            .trim_end_matches('\n')
            .replace('\n', "\r\n")
            .as_bytes(),
    );
    assert_eq!(scrolled(&mut screen), 0, "{size:?}\n{frame}");
    let mut lines: Vec<_> = frame
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.resize(size.rows, String::new());
    assert_eq!(shown(&screen), lines, "{size:?}\n{frame}");
    assert!(
        lines[0].starts_with("foretide demo  Tue 2026-03-10 "),
        "{frame}"
    );
}

#[test]
fn every_frame_fits_every_terminal_with_its_heading_and_its_whole_sentence() {
    let sizes = [(80, 24), (120, 40), (200, 50), (60, 20), (50, 24)];
    let sizes = sizes.map(|(columns, rows)| Size { columns, rows });
    let screens = [true, false].map(|unicode| Screen { unicode, ..PLAIN });
    for args in all_args() {
        let mut setup = None;
        let mut animation = animation(&args, &context(), &mut setup).unwrap();
        while !animation.is_over() {
            // Every seventh frame: all of them would take long.
            (0..7).for_each(|_| animation.advance());
            for (size, screen) in sizes[..3].iter().zip(screens.iter().cycle()) {
                assert_whole(&animation.frame(*size, *screen), *size);
            }
        }
        for (size, screen) in sizes.iter().flat_map(|size| screens.map(|on| (*size, on))) {
            let screen = Screen {
                size: Some(size),
                ..screen
            };
            assert_whole(&still(&*animation, screen), size);
        }
    }
}

#[test]
fn a_long_sentence_makes_the_pictures_lower_and_is_not_cut() {
    let setup = args().scenario.setup(&context()).unwrap();
    let mut animation = BacktestAnimation::new(&setup, args().scenario);
    animation.pass(setup.minutes() / 2);
    let long = "a sentence with many words ".repeat(14) + "and an end";
    animation.set_sentence(&long);
    let frame = animation.frame(LEAST, PLAIN);
    assert_whole(&frame, LEAST);
    let words = frame.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.ends_with(&long), "{frame}");
}

#[test]
fn at_80x24_nothing_scrolls_and_the_screen_is_restored_below_the_final_picture() {
    for args in all_args() {
        let mut recorder = Recorder::new(&[(80, 24)]);
        let parts = played(&args, &mut recorder);
        let mut screen = terminal(LEAST);
        screen.process(b"$ foretide demo\r\n");
        let (last, frames) = parts.split_last().unwrap();
        for frame in frames {
            screen.process(frame.as_bytes());
            assert!(screen.screen().alternate_screen() && screen.screen().hide_cursor());
            let shown = shown(&screen);
            assert!(
                shown[0].starts_with("foretide demo  Tue 2026-03-10 "),
                "{shown:#?}"
            );
            assert_eq!(scrolled(&mut screen), 0);
        }
        screen.process(last.replace('\n', "\r\n").as_bytes());
        assert!(!screen.screen().alternate_screen() && !screen.screen().hide_cursor());
        // The command line and the final picture, with the prompt below it.
        let output = still_of(&args, Some(LEAST));
        let shown = shown(&screen);
        let first = shown
            .iter()
            .position(|line| line.starts_with("foretide demo"));
        let expected: Vec<_> = output.lines().map(str::trim_end).collect();
        assert_eq!(shown[first.unwrap()..][..expected.len()], expected);
        assert!(scrolled(&mut screen) <= 1);
        let seconds = recorder.waits.iter().sum::<Duration>().as_secs();
        assert!((25..=35).contains(&seconds), "{seconds} s");
    }
}

fn still_of(args: &DemoArgs, size: Option<Size>) -> String {
    let context = CommandContext {
        screen: Screen { size, ..PLAIN },
        ..context()
    };
    run(args, &context).unwrap().text
}

#[test]
fn each_frame_has_the_size_that_the_terminal_has_then() {
    let sizes = [(80, 24), (100, 30), (50, 10), (80, 24)];
    let mut recorder = Recorder {
        stop_after: 4,
        ..Recorder::new(&sizes)
    };
    let parts = played(&args(), &mut recorder);
    let mut screen = terminal(LEAST);
    for (part, (columns, rows)) in parts.iter().zip(sizes) {
        screen
            .screen_mut()
            .set_size(rows.try_into().unwrap(), columns.try_into().unwrap());
        screen.process(part.as_bytes());
        let shown = shown(&screen);
        assert!(shown[0].starts_with("foretide demo"), "{shown:#?}");
        let most = shown.iter().map(|line| line.chars().count()).max();
        assert!(most > Some(columns - 4), "{shown:#?}");
    }
}

#[test]
fn a_small_or_dumb_terminal_gets_the_still_picture() {
    let size = |columns, rows| Some(Size { columns, rows });
    let on = |screen: Screen| {
        let context = CommandContext {
            screen,
            ..context()
        };
        let notes = run(&args(), &context).unwrap().notes;
        (animates(&args(), screen), notes)
    };
    let needs = |has: &str| {
        format!("foretide: the animation needs a terminal of 80x24; this one has {has}\n")
    };
    let sized = |size| Screen { size, ..PLAIN };
    assert_eq!(on(sized(size(80, 24))), (true, String::new()));
    assert_eq!(on(sized(size(100, 23))), (false, needs("100x23")));
    assert_eq!(on(sized(size(79, 24))), (false, needs("79x24")));
    let dumb = Screen {
        cursor: false,
        ..sized(size(60, 24))
    };
    assert_eq!(on(dumb), (false, String::new()));
    assert_eq!(on(sized(None)), (true, String::new()));
}

#[test]
fn the_forecast_is_drawn_ahead_of_now_and_behind_now_at_the_end() {
    let screen = Screen {
        unicode: false,
        ..PLAIN
    };
    let size = LEAST;
    let setup = args().scenario.setup(&context()).unwrap();
    let mut animation = BacktestAnimation::new(&setup, args().scenario);
    animation.pass(setup.minutes() / 3);
    let ours = |animation: &BacktestAnimation<'_>| {
        let frame = animation.frame(size, screen);
        let upper = frame.split("plain HPA").next().unwrap_or_default();
        upper.lines().skip(2).collect::<Vec<_>>().join("\n")
    };
    let playing = ours(&animation);
    assert!(playing.contains('*') && playing.contains('~'), "{playing}");
    animation.pass(setup.minutes());
    let over = ours(&animation);
    assert!(!over.contains('*') && over.contains('~'), "{over}");
}

#[test]
fn a_speed_is_a_factor_above_zero() {
    assert_eq!(parse_speed("2.5"), Ok(2.5));
    for bad in ["0", "-1", "NaN", "fast"] {
        assert!(parse_speed(bad).is_err(), "{bad}");
    }
}
