//! The limit of open files: raised to what the settings need, or named where it cannot be.

use crate::support::{ADMIN, Database, Gateway};

const FEW: (&str, &str) = ("MCPPROXY__LIMITS__CONNECTIONS_MAX", "500");

#[tokio::test]
async fn a_low_limit_is_raised_to_what_the_settings_need() {
    let database = Database::migrated().await;
    let gateway = Gateway::start_in_shell("ulimit -Sn 300", &database, &[ADMIN, FEW]).await;
    let files = gateway.scrape().await.sum("process_max_fds", &[]);
    assert!((1000.0..4000.0).contains(&files), "{files}");
    let log = gateway.log();
    assert!(log.contains("raised") && log.contains("300") && log.contains(&files.to_string()), "{log}");
    assert!(!log.contains("limits.connections_max"), "{log}");
}

#[tokio::test]
async fn a_limit_that_is_too_low_is_named_with_what_to_do() {
    let database = Database::migrated().await;
    let gateway = Gateway::start_in_shell("ulimit -n 400", &database, &[ADMIN, FEW]).await;
    assert_eq!(gateway.scrape().await.sum("process_max_fds", &[]), 400.0);
    let log = gateway.log();
    let warning =
        log.lines().find(|line| line.contains("WARN") && line.contains("open files")).unwrap_or_default();
    for told in ["400", "limits.connections_max", "LimitNOFILE", "ulimit -n"] {
        assert!(warning.contains(told), "{told}: {log}");
    }
    // no word of it where it is enough
    let enough = Gateway::start_in_shell("ulimit -n 4000", &database, &[ADMIN, FEW]).await;
    assert!(!enough.log().contains("open files"), "{}", enough.log());
}
