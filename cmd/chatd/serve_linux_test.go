package main

import "testing"

// What the config says is what the daemon runs with.
func TestProvisionOptions(t *testing.T) {
	cfg, err := load(t, "backend: cgroupfs\naudit_max: 1MiB\naudit_keep: 5\nmax_awake: 9\nfile_max: 8MiB\ncgroup: mine\naccount: useradd\nuids: 3000000-4000000\nlandlock_min_abi: 3\nshim: /p/shim\nenforce: /p/enforce\nallow_missing: [cpu]\n")
	if err != nil {
		t.Fatal(err)
	}
	opt, err := provisionOptions(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for what, same := range map[string]bool{
		"backend": opt.Backend == "cgroupfs", "audit_max": opt.AuditMax == 1<<20, "audit_keep": opt.AuditKeep == 5,
		"max_awake": opt.MaxAwake == 9, "file_max": opt.FileMax == 8<<20, "cgroup": opt.Cgroup == "mine", "account": opt.Account == "useradd",
		"uids": opt.UIDs.Low == 3000000 && opt.UIDs.High == 4000000, "landlock_min_abi": opt.LandlockABI == 3,
		"shim": opt.Shim == "/p/shim", "enforce": opt.Enforce == "/p/enforce",
		"allow_missing": len(opt.AllowMissing) == 1, "profiles": len(opt.Profiles) == 3, "userdb": opt.Userdb == "/etc/userdb",
		"state": opt.State == "/var/lib/chatd", "run": opt.Run == "/run/chatd", "homes": opt.Homes == "/srv/chatd/homes",
	} {
		if !same {
			t.Errorf("%s does not arrive: %+v", what, opt)
		}
	}
}
