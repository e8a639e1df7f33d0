//! Secret values in the tenants file.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Secret value, given literally or by an environment variable. The type has no `Debug`, so that nothing prints it.
pub(super) enum DeclaredSecret {
    Literal(String),
    /// Name of an environment variable.
    Env(String),
}

impl<'de> Deserialize<'de> for DeclaredSecret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DeclaredSecret, D::Error> {
        let value = Value::deserialize(from)?;
        let fields = value.as_object().filter(|fields| fields.len() == 1);
        match (&value, fields.and_then(|fields| fields.get("env"))) {
            (Value::String(text), _) => Ok(DeclaredSecret::Literal(text.clone())),
            (_, Some(Value::String(name))) => Ok(DeclaredSecret::Env(name.clone())),
            _ => Err(D::Error::custom("must be a text, or {env: NAME}")),
        }
    }
}

impl DeclaredSecret {
    /// Replaces a reference to an environment variable by its value.
    pub(super) fn resolve(&mut self, path: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
        let variable = match self {
            Self::Literal(text) if text.contains("${") => {
                return Err(format!("{path}: a variable is written {{env: NAME}}"));
            }
            Self::Literal(_) => return Ok(()),
            Self::Env(variable) => &*variable,
        };
        // a text that is no name may be the credential itself, in the wrong place
        if !variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("{path}: env must be the name of a variable"));
        }
        let unset = || format!("{path}: the environment variable {variable} is not set, or empty");
        let value = env(variable).ok_or_else(unset)?;
        *self = Self::Literal(value);
        Ok(())
    }

    /// Returns the value; `null` for a variable that was not resolved.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Literal(text) => text.clone().into(),
            Self::Env(_) => Value::Null,
        }
    }
}
