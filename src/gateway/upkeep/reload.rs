//! Settings that change while the gateway runs: this replica reads its own file again, and tells the others to read theirs.

use std::sync::Arc;

use super::Upkeep;
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::{Caller, Reread};
use crate::store::ReloadNotice;

impl Upkeep {
    /// Reads the settings file of this replica again and puts it into force, then tells the other replicas to do the same
    /// with theirs.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role; otherwise as [`Upkeep::reload_everywhere`].
    pub async fn reload_for(&self, caller: &Caller) -> Result<Reread, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        self.reload_everywhere().await
    }

    /// Reads the settings file again, as [`Upkeep::reload_for`] does, for whoever may send this process a signal.
    ///
    /// # Errors
    /// [`GatewayError::Conflict`] with the reason if the file cannot be used: nothing has changed then, and nobody is told.
    /// [`GatewayError::Unavailable`] if the database is out of reach: repeat it then, since servers with other programs or
    /// other replicas may not have them yet.
    pub async fn reload_everywhere(&self) -> Result<Reread, GatewayError> {
        let reread = self.reload_here().await?;
        log(&reread);
        self.store.notify_reload(ReloadNotice { replica: self.replica }).await.map_err(|error| {
            tracing::warn!(%error, "the other replicas could not be told to read their settings again");
            GatewayError::Unavailable
        })?;
        Ok(reread)
    }

    /// Reads the settings file of this replica again, because another replica has done so.
    pub(super) async fn follow_reload(&self) {
        // an error was logged where it happened
        if let Ok(reread) = self.reload_here().await {
            log(&reread);
        }
    }

    /// Reads the settings file of this replica again, because another replica may have done so. Says nothing if no setting
    /// has changed.
    pub(super) async fn follow_missed_reload(&self) {
        if let Ok(reread) = self.reload_here().await
            && !reread.changed.is_empty()
        {
            log(&reread);
        }
    }

    async fn reload_here(&self) -> Result<Reread, GatewayError> {
        let _one_at_a_time = self.reloading.lock().await;
        let settings = Arc::clone(&self.options.live_settings);
        let reread = tokio::task::spawn_blocking(move || settings.reread()).await;
        let reread = reread.unwrap_or_else(|_| Err("reading the settings failed".to_owned()));
        let reread = reread.map_err(|why| {
            tracing::error!("the settings are as before: {why}");
            GatewayError::Conflict(format!("Nothing has changed: {why}"))
        })?;
        // even if no setting has changed: the time before may have failed here
        self.tenants.programs_changed().await.map_err(|error| {
            tracing::warn!(%error, "servers have the programs of before until the settings are read once more");
            GatewayError::Unavailable
        })?;
        Ok(reread)
    }
}

fn log(Reread { changed, needs_restart }: &Reread) {
    tracing::info!(?changed, ?needs_restart, "the settings were read again");
}
