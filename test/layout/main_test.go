package layout

import (
	"log"
	"os"
	"testing"
)

// root is the repository's, seen from the folder of these tests: they run there.
const root = "../.."

func TestMain(m *testing.M) {
	if err := os.Chdir(root); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}
