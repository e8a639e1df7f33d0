//! Checks for poolers between the gateway and Postgres, at the start. There an error can say what to do; later, a query
//! would meet another client's statement.

use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgSeverity};
use sqlx::{Connection, PgConnection};

use super::connect::connect;
use super::unit::Statements;
use super::{Store, StoreError};

/// Checks that a URL leads to Postgres itself: a pooler refuses a setting of the session, or drops it.
pub(super) async fn check_direct(options: &PgConnectOptions) -> Result<(), StoreError> {
    let is_pooled = || {
        StoreError::Schema(
            "there is a pooler in front of the database: database.direct_url must name Postgres itself, for listening, \
             migrations and partitions (database.url may go through the pooler)"
                .to_owned(),
        )
    };
    let probe = options.clone().options([("lock_timeout", "50ms")]);
    let mut connection = match connect(&probe).await {
        Err(StoreError::Unreachable { source: sqlx::Error::Database(error), .. })
            if error.message().contains("unsupported startup parameter") =>
        {
            return Err(is_pooled());
        }
        other => other?,
    };
    let kept: String =
        sqlx::query_scalar("select current_setting('lock_timeout')").fetch_one(&mut connection).await?;
    connection.close().await?;
    if kept == "50ms" { Ok(()) } else { Err(is_pooled()) }
}

impl Store {
    /// Checks that the database answers at `direct_url`, and that no pooler is in between.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] with the reason, or [`StoreError::Schema`] if there is a pooler. Other errors come
    /// from the database.
    pub async fn check_connection(&self) -> Result<(), StoreError> {
        check_direct(&self.direct).await
    }

    /// Checks that the pooler, if there is one, keeps the prepared statements of its clients apart. Otherwise a client
    /// would run another client's statement of the same name. Nothing is checked where statements are not kept.
    ///
    /// # Errors
    /// [`StoreError::Schema`] if the pooler mixes up statements, [`StoreError::Unreachable`] if it does not answer.
    /// Other errors come from the database.
    pub async fn check_statements(&self) -> Result<(), StoreError> {
        if self.is_direct || self.statements == Statements::Unnamed {
            return Ok(());
        }
        let options = self.control.connect_options();
        // both give their first statement the same name; the second may get the session that the first has used
        let (mut first, mut second) = (connect(&options).await?, connect(&options).await?);
        let one = ask(&mut first, "select $1::bigint + 1").await;
        let two = ask(&mut second, "select $1::bigint + 2").await;
        drop((first.close().await, second.close().await));
        match (one, two) {
            (Ok(2), Ok(3)) => Ok(()),
            (Err(error), _) | (_, Err(error)) if !is_mixed_up(&error) => Err(error.into()),
            _ => Err(StoreError::Schema(
                "the pooler in front of the database mixes up prepared statements (pgbouncer does before 1.21): set \
                 database.statement_cache = 0"
                    .to_owned(),
            )),
        }
    }
}

async fn ask(connection: &mut PgConnection, query: &'static str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(query).bind(1_i64).fetch_one(connection).await
}

/// Returns whether a pooler mixed up prepared statements. 42P05: the name exists already; 26000: it does not exist;
/// 08P01: the statement is another one. An 08P01 that ends the connection is a message of the pooler itself, for
/// example that it waits to log in again.
fn is_mixed_up(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
    else {
        return false;
    };
    match error.code() {
        "42P05" | "26000" => true,
        "08P01" => matches!(error.severity(), PgSeverity::Error),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use sqlx::postgres::PgSslMode;

    use super::*;

    /// Returns the error of a login that the server refuses with this severity and code.
    async fn refusal(severity: &str, code: &str) -> sqlx::Error {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let fields = format!("S{severity}\0V{severity}\0C{code}\0Mno\0\0");
        let server = std::thread::spawn(move || {
            let (mut line, _) = listener.accept().unwrap();
            let read = line.read(&mut [0; 1024]).unwrap();
            let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
            line.write_all(&[b"E", &length[..], fields.as_bytes()].concat()).unwrap();
            read
        });
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .username("app")
            .ssl_mode(PgSslMode::Disable);
        let error = PgConnection::connect_with(&options).await.unwrap_err();
        assert!(server.join().unwrap() > 0);
        error
    }

    #[tokio::test]
    async fn a_goodbye_of_the_pooler_is_no_mix_up() {
        for (severity, code, expected) in [
            ("ERROR", "42P05", true),
            ("ERROR", "26000", true),
            ("ERROR", "08P01", true),
            ("FATAL", "08P01", false),
            ("ERROR", "57014", false),
        ] {
            let error = refusal(severity, code).await;
            assert!(error.as_database_error().is_some(), "{error}");
            assert_eq!(is_mixed_up(&error), expected, "{severity} {code}");
        }
    }
}
