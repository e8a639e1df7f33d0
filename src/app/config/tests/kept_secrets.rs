//! Secrets that are kept in `data_dir`.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn with_a_database_url_missing_secrets_are_named() {
    let text =
        sentence(bare(&[("DATABASE_URL", URL), ("MCPPROXY__SESSIONS__KEY", GOOD), ("HOME", "/nonexistent")]));
    assert!(text.contains("auth.bootstrap_key (MCPPROXY__AUTH__BOOTSTRAP_KEY)"), "{text}");
    assert!(text.contains("secrets.master_key") && !text.contains("sessions.key"), "{text}");
    let text = sentence(load(None, &[("MCPPROXY__AUTH__BOOTSTRAP_KEY", ""), ("HOME", "/nonexistent")]));
    assert!(text.contains("auth.bootstrap_key"), "{text}");
}

#[test]
fn without_a_database_url_secrets_are_generated_once() {
    let home = tempfile::tempdir().unwrap();
    let home_text = home.path().to_str().unwrap();
    let first = bare(&[("HOME", home_text)]).unwrap();
    let data_dir = home.path().join(".local/share/mcpproxy");
    assert!(matches!(&first.database.location, DatabaseLocation::Private { data_dir: d } if *d == data_dir));
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let secrets = data_dir.join("secrets");
    assert_eq!(mode(secrets.clone()), 0o700);
    let files: BTreeSet<_> = std::fs::read_dir(&secrets)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, ["bootstrap_key", "master_key", "sessions_key"].map(str::to_owned).into());
    files.iter().for_each(|name| assert_eq!(mode(secrets.join(name)), 0o600, "{name}"));
    let kept = std::fs::read_to_string(secrets.join("bootstrap_key")).unwrap();
    assert_eq!(kept, format!("{}\n", first.bootstrap_key.expose()));
    assert!(kept.starts_with("mcpk_") && kept.len() == 5 + 43 + 1, "{}", kept.len());

    let second =
        bare(&[("HOME", "/"), ("XDG_DATA_HOME", home.path().join(".local/share").to_str().unwrap())])
            .unwrap();
    assert_eq!(second.bootstrap_key.expose(), first.bootstrap_key.expose());
    assert_eq!(second.session_keys[0].expose(), first.session_keys[0].expose());
    assert_eq!(second.master_keys[0].expose(), first.master_keys[0].expose());

    let other = tempfile::tempdir().unwrap();
    let given = [("MCPPROXY__DATA_DIR", other.path().to_str().unwrap()), ("MCPPROXY__SESSIONS__KEY", GOOD)];
    let third = bare(&given).unwrap();
    assert_eq!(third.session_keys[0].expose(), GOOD);
    assert!(!other.path().join("secrets/sessions_key").exists());
    assert_ne!(third.bootstrap_key.expose(), first.bootstrap_key.expose());
    assert!(sentence(bare(&[])).contains("data_dir"));

    let pod = tempfile::tempdir().unwrap();
    for (place, value, named) in
        [("KUBERNETES_SERVICE_HOST", "10.0.0.1", "Kubernetes"), ("MCPPROXY_IMAGE", "1", "container image")]
    {
        let text = sentence(bare(&[(place, value), ("HOME", pod.path().to_str().unwrap())]));
        assert!(text.contains("DATABASE_URL") && text.contains(named), "{text}");
        assert_eq!(std::fs::read_dir(pod.path()).unwrap().count(), 0);
    }
}

#[test]
fn kept_secrets_are_refused_when_others_may_have_read_or_broken_them() {
    let home = tempfile::tempdir().unwrap();
    let environment = [("MCPPROXY__DATA_DIR", home.path().to_str().unwrap())];
    bare(&environment).unwrap();
    let dir = home.path().join("secrets");
    let path = dir.join("master_key");
    let set =
        |path: &Path, mode: u32| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    for (path, wide, right) in [(&path, 0o640, 0o600), (&dir, 0o755, 0o700)] {
        set(path, wide);
        let text = sentence(bare(&environment));
        assert!(text.contains("chmod") && text.contains(path.to_str().unwrap()), "{text}");
        set(path, right);
    }
    bare(&environment).unwrap();
    // a folder from which nothing is needed is not looked at, by a start or by its review
    set(&dir, 0o755);
    let given = [("DATABASE_URL", ""), environment[0]];
    load(None, &given).unwrap();
    assert!(review(None, &given).unwrap().to_generate.is_empty());
    set(&dir, 0o700);
    std::fs::write(&path, "").unwrap();
    let text = sentence(bare(&environment));
    assert!(text.contains("master_key") && text.contains("32 bytes"), "{text}");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert!(sentence(bare(&environment)).contains("regular file"));
}

#[test]
fn kept_secrets_may_be_lists_where_their_settings_are() {
    let home = tempfile::tempdir().unwrap();
    let environment = [("MCPPROXY__DATA_DIR", home.path().to_str().unwrap())];
    let first = bare(&environment).unwrap();
    let secrets = home.path().join("secrets");
    assert_eq!(first.bootstrap_key_file, Some(secrets.join("bootstrap_key")));
    let given = [environment[0], ("MCPPROXY__AUTH__BOOTSTRAP_KEY", GOOD)];
    assert_eq!(bare(&given).unwrap().bootstrap_key_file, None);

    let old = std::fs::read_to_string(secrets.join("sessions_key")).unwrap();
    std::fs::write(secrets.join("sessions_key"), format!("{GOOD},{old}")).unwrap();
    let old_master = std::fs::read_to_string(secrets.join("master_key")).unwrap();
    std::fs::write(secrets.join("master_key"), format!("{MASTER}\n{old_master}")).unwrap();
    let second = bare(&environment).unwrap();
    let sessions: Vec<&str> = second.session_keys.iter().map(Secret::expose).collect();
    assert_eq!(sessions, [GOOD, old.trim()]);
    assert_eq!(second.master_keys.len(), 2);
    assert_eq!(second.master_keys[1].expose(), first.master_keys[0].expose());

    let review =
        || Review::load(None, environment.map(|(name, value)| (name.into(), value.into())).into_iter());
    for (file, text, says) in [
        ("sessions_key", format!("[{GOOD}, {OTHER}]"), "without brackets"),
        ("sessions_key", format!("'{GOOD}'"), "brackets or quotes"),
        ("sessions_key", format!("{GOOD},short-secret"), "sessions.key, entry 2,"),
        ("master_key", format!("{MASTER},short-secret"), "secrets.master_key, entry 2,"),
        ("sessions_key", "x".repeat(5000), "larger than"),
    ] {
        let kept = std::fs::read_to_string(secrets.join(file)).unwrap();
        std::fs::write(secrets.join(file), text).unwrap();
        let said = sentence(bare(&environment));
        assert!(said.contains(says) && said.contains(file) && !said.contains("short-secret"), "{said}");
        assert_eq!(review().unwrap_err().to_string(), said, "config check says the same");
        std::fs::write(secrets.join(file), kept).unwrap();
    }
    review().unwrap();
}
