//! The demo as a process on a terminal device: it asks for the size, and Ctrl-C ends it with the screen restored.

use std::{
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// The demo with standard output on a terminal of this size, and the other end of that terminal.
fn demo(columns: u16, rows: u16, term: &str) -> (Command, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let theirs = File::options().read(true).write(true).open(path).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretide"));
    command
        .arg("demo")
        .env("TERM", term)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(theirs)
        .stderr(Stdio::piped());
    (command, ours.into())
}

/// Everything that is written to the terminal until `enough`, or until no process has it open.
fn read_until(
    terminal: &mut File,
    screen: &mut vt100::Parser,
    enough: impl Fn(&vt100::Screen) -> bool,
) {
    let mut buffer = [0; 4096];
    while !enough(screen.screen()) {
        match terminal.read(&mut buffer) {
            Ok(count) if count > 0 => screen.process(&buffer[..count]),
            // A terminal that nobody has open any more is an error to read.
            Ok(_) | Err(_) => return,
        }
    }
}

#[test]
fn ctrl_c_restores_the_screen_and_the_exit_code_is_130() {
    let (mut command, mut terminal) = demo(80, 24, "xterm");
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut screen = vt100::Parser::new(24, 80, 100);
    read_until(&mut terminal, &mut screen, |screen| {
        screen.alternate_screen() && screen.contents().contains("plain HPA")
    });
    assert!(screen.screen().contents().starts_with("foretide demo  Tue"));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    read_until(&mut terminal, &mut screen, |_| false);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!screen.screen().alternate_screen() && !screen.screen().hide_cursor());
    assert_eq!(screen.screen().contents(), "");
}

#[test]
fn a_narrow_and_a_dumb_terminal_get_a_still_picture_that_fits() {
    for (columns, term) in [(60, "xterm"), (80, "dumb")] {
        let (mut command, mut terminal) = demo(columns, 20, term);
        let child = command.spawn().unwrap();
        drop(command);
        let mut screen = vt100::Parser::new(20, columns, 100);
        read_until(&mut terminal, &mut screen, |_| false);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let notes = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            notes.contains("needs a terminal of 80x24"),
            term == "xterm",
            "{notes}"
        );
        let contents = screen.screen().contents();
        assert!(
            contents.starts_with("foretide demo  Tue 2026-03-10 18:00 UTC"),
            "{contents}"
        );
        assert!(contents.contains("min short"), "{contents}");
        assert!(
            contents.trim_end().ends_with("more replica-hours"),
            "{contents}"
        );
    }
}
