//! `deploy/needs.sh`: what it says to who may not install.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/needs.sh");

/// Runs it with nothing on the PATH but these programs of ours, an `id` that names this user, and programs that install.
/// `CARGO_HOME` is `cargo-home` beside them. Programs succeed and do nothing, but those whose name ends with `!` fail.
fn needs(user: u32, own: &[&str], wanted: &[&str]) -> Output {
    let bin = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = bin.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("id", &format!("echo {user}"));
    script("apt-get", "echo \"apt-get $*\" >>\"$LOG\"");
    for name in own {
        match name.strip_suffix('!') {
            Some(name) => script(name, "exit 1"),
            None => script(name, "exit 0"),
        }
    }
    symlink("/bin/bash", bin.path().join("bash")).unwrap();
    let log = bin.path().join("log");
    let output = Command::new("/bin/bash")
        .arg(SCRIPT)
        .args(wanted)
        .env("PATH", bin.path())
        .env("CARGO_HOME", bin.path().join("cargo-home"))
        .env("LOG", &log)
        .output()
        .unwrap();
    let ran = fs::read_to_string(log).unwrap_or_default();
    Output { stdout: ran.into_bytes(), ..output }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn who_is_not_root_gets_one_line_to_run_and_exit_code_2() {
    let output = needs(1000, &["promtool"], &["promtool", "no-such-program", "other:other-package"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "nothing was run");
    let line = "  sudo apt-get update && sudo RUNLEVEL=1 SYSTEMD_OFFLINE=1 apt-get install -y --no-install-recommends no-such-program other-package\n";
    assert!(text(&output.stderr).ends_with(line), "{output:?}");
}

#[test]
fn root_installs_what_is_missing_and_names_what_stays_missing() {
    let output = needs(0, &["promtool"], &["promtool", "no-such-program"]);
    let ran = "apt-get update -qq\napt-get install -y -qq --no-install-recommends no-such-program\n";
    // elsewhere than on Debian there is nothing to install with
    let expected = if fs::exists("/etc/debian_version").unwrap() { ran } else { "" };
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no-such-program"), "{output:?}");
}

#[test]
fn what_is_there_needs_nothing() {
    let output = needs(1000, &["promtool", "cargo-nextest"], &["promtool", "cargo-nextest"]);
    assert_eq!((output.status.code(), text(&output.stdout), text(&output.stderr)), (Some(0), "", ""));
}

#[test]
fn without_rust_nothing_else_is_asked_for() {
    let output = needs(0, &[], &["rust", "no-such-program"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    assert!(text(&output.stderr).contains("https://sh.rustup.rs"), "{output:?}");
}

#[test]
fn lints_that_rustup_cannot_add_are_named_with_what_to_run() {
    let output = needs(0, &["cargo!", "rustup!"], &["rust-lints"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("rustup component add rustfmt clippy"), "{output:?}");
}

#[test]
fn tools_that_only_cargo_finds_are_there() {
    let output = needs(1000, &["cargo!", "cargo-home/bin/cargo-nextest"], &["cargo-nextest"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}
