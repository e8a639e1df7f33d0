//! Exit codes of `serve`, `migrate` and `config` for failures: they say whether starting again helps (docs/cli.md).

use std::error::Error;

use super::config::ConfigError;
use super::local_postgres::LocalPostgresError;
use crate::gateway::MasterKeysError;
use crate::store::StoreError;

/// Exit code of a failure that may pass by itself, or of an unknown one: another start is worth a try.
const FAILED: u8 = 1;
/// Exit code of settings that cannot be used, also of commands that make no sense as written.
const WRONG_SETTINGS: u8 = 2;
/// Exit code for a database, login, key or machine that is not as needed, also of commands that are refused.
const REFUSED: u8 = 3;

/// Returns the exit code of a start that failed.
pub fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of).unwrap_or(FAILED)
}

fn code_of(cause: &(dyn Error + 'static)) -> Option<u8> {
    if let Some(error) = cause.downcast_ref::<ConfigError>() {
        let may_pass = matches!(error, ConfigError::Random(_) | ConfigError::Io { .. });
        return Some(if may_pass { FAILED } else { WRONG_SETTINGS });
    }
    let is_lasting = match (cause.downcast_ref::<StoreError>(), cause.downcast_ref::<LocalPostgresError>()) {
        (Some(error), _) => error.is_lasting(),
        (_, Some(error)) => error.is_lasting(),
        _ => match cause.downcast_ref::<MasterKeysError>()? {
            MasterKeysError::Wrong { .. } => true,
            MasterKeysError::Unusable => false,
            // a transparent error is not in the chain itself
            MasterKeysError::Store(error) => error.is_lasting(),
        },
    };
    Some(if is_lasting { REFUSED } else { FAILED })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn errors_are_told_apart_whatever_is_said_around_them() {
        let failed = |error: anyhow::Error| Err::<(), _>(error).context("the start failed").unwrap_err();
        let wrong = MasterKeysError::Wrong { known: String::new(), given: String::new() };
        let in_use = LocalPostgresError::InUse { pid: "1".to_owned(), path: "/data".into() };
        let rows = [
            (ConfigError::Kubernetes.into(), WRONG_SETTINGS),
            (ConfigError::Io { path: "/data".into(), reason: "cannot be made".to_owned() }.into(), FAILED),
            (
                ConfigError::SecretFile { path: "/data".into(), reason: "is open".to_owned() }.into(),
                WRONG_SETTINGS,
            ),
            (LocalPostgresError::NoAccount.into(), REFUSED),
            (in_use.into(), FAILED),
            (StoreError::Schema("behind".to_owned()).into(), REFUSED),
            (StoreError::Busy("a backup".to_owned()).into(), FAILED),
            (StoreError::ReadOnly.into(), FAILED),
            (wrong.into(), REFUSED),
            (MasterKeysError::Store(StoreError::Schema("behind".to_owned())).into(), REFUSED),
            (anyhow::anyhow!("the port is taken"), FAILED),
        ];
        for (error, expected) in rows {
            let text = format!("{error:#}");
            assert_eq!((code(&error), code(&failed(error))), (expected, expected), "{text}");
        }
    }
}
