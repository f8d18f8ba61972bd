package provision

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/netpolicy"
)

// TestRemoveKeys leaves a user keyring with a key in it, as a login as the chat
// would, and takes both away.
func TestRemoveKeys(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
			t.Fatal("needs root, and CHATD_TEST_REQUIRE=all")
		}
		t.Skip("SKIPPED: needs root")
	}
	uid := 2000000000 + uint32(os.Getpid())
	err := netpolicy.AsUID(uid, func() error {
		_, err := unix.AddKey("user", "chatd-test", []byte("secret"), unix.KEY_SPEC_USER_KEYRING)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if has, err := hasKeys(uid); err != nil || !has {
		t.Fatalf("the key is not seen: %v, %v", has, err)
	}
	if err := removeKeys(t.Context(), uid); err != nil {
		t.Error(err)
	}
	if has, err := hasKeys(uid); err != nil || has {
		t.Errorf("keys are left: %v, %v", has, err)
	}
}
