//! Check whether this program and the database's schema fit each other.

use sqlx::Row;

use super::migrate::MIGRATOR;
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};

impl Store {
    /// Refuses a database whose schema is behind this binary. A newer schema is accepted: it is additive for one
    /// release.
    ///
    /// # Errors
    /// [`StoreError::Schema`] if the schema or the roles do not fit; the text says what to do. Other errors come from
    /// the database.
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        let behind = |what: &str| {
            StoreError::Schema(format!(
                "the database {what}: run `mcpproxy migrate` with the same settings, then start again"
            ))
        };
        let mut tx = match self.begin(Lane::Control, TxAccess::Owner).await {
            Ok(tx) => tx,
            Err(StoreError::Database(sqlx::Error::Database(error))) if is_missing_role(error.as_ref()) => {
                return Err(behind("has no roles of mcpproxy yet, or this login was not given them"));
            }
            Err(error) => return Err(error),
        };
        let applied = sqlx::query("select version, checksum from _sqlx_migrations where success")
            .fetch_all(&mut *tx)
            .await;
        let applied = match applied {
            Ok(rows) => rows,
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => {
                return Err(behind("has never been migrated"));
            }
            Err(error) => return Err(error.into()),
        };
        for migration in MIGRATOR.iter() {
            let found = applied.iter().find(|row| row.get::<i64, _>("version") == migration.version);
            match found {
                None => return Err(behind("is behind this version of mcpproxy")),
                Some(row) if row.get::<Vec<u8>, _>("checksum") != migration.checksum.as_ref() => {
                    return Err(StoreError::Schema(format!(
                        "migration {} was applied with another text: this database belongs to another build",
                        migration.version
                    )));
                }
                Some(_) => {}
            }
        }
        check_minimum(&mut tx).await?;
        Ok(tx.rollback().await?)
    }
}

/// Refuses a schema that only newer programs can use. Additive migrations name no such release.
async fn check_minimum(tx: &mut Unit) -> Result<(), StoreError> {
    let named: Vec<String> =
        sqlx::query_scalar("select release from schema_minimum").fetch_all(&mut **tx).await?;
    let own = env!("CARGO_PKG_VERSION");
    match named.into_iter().max_by_key(|release| numbers(release)) {
        Some(least) if numbers(own) < numbers(&least) => Err(StoreError::Schema(format!(
            "the database has a schema for mcpproxy {least} and newer, and this is {own}: start a newer one"
        ))),
        _ => Ok(()),
    }
}

/// Returns the numbers of a release, for comparison; the part behind a `-` or `+` does not count.
fn numbers(release: &str) -> [u64; 3] {
    let core = release.split(['-', '+']).next().unwrap_or_default();
    let mut parts = core.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// Returns whether the role is missing. 22023: it does not exist; 42501: it may not be used.
fn is_missing_role(error: &(dyn sqlx::error::DatabaseError + 'static)) -> bool {
    matches!(error.code().as_deref(), Some("22023" | "42501"))
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (older, newer) in [("0.9.9", "0.10.0"), ("0.10.0", "1.0.0"), ("1.2.3-rc.1", "1.2.4")] {
            assert!(numbers(older) < numbers(newer), "{older} {newer}");
        }
    }
}
